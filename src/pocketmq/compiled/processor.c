/* Which instructions the processor has beyond those that all of its kind have.
 *
 * `__builtin_cpu_supports` would tell, but it needs a part of the compiler's own library, which cross compilers lack. Asking takes
 * long on a virtual machine, so it is done once. */

#include "turn.h"

bool has_pclmul, has_avx2;

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>

enum { PCLMUL_IN_ECX = 1 << 1, OSXSAVE_IN_ECX = 1 << 27, AVX2_IN_EBX = 1 << 5, WIDE_REGISTERS_KEPT = 6 };

void prepare_processor(void) {
    unsigned a, b, c, d, kept, unused;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return;
    has_pclmul = c & PCLMUL_IN_ECX;
    if (!(c & OSXSAVE_IN_ECX)) return;
    __asm__("xgetbv" : "=a"(kept), "=d"(unused) : "c"(0)); /* whether the system keeps the wide registers of a thread */
    if ((kept & WIDE_REGISTERS_KEPT) != WIDE_REGISTERS_KEPT || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;
    has_avx2 = b & AVX2_IN_EBX;
}
#else
void prepare_processor(void) {}
#endif
