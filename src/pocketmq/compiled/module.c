/* The module `pocketmq.compiled._turn`: see `_turn.pyi` for what each function takes and gives. */

#include "turn.h"

#define FAST(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}

static PyMethodDef methods[] = {
    FAST(split_whole),
    FAST(lay_out_sends),
    FAST(lay_out_batch),
    FAST(serve_pulls),
    FAST(pick_entries),
    FAST(count_sound),
    FAST(read_keys),
    FAST(enter_keys),
    FAST(record_starts),
    FAST(read_properties),
    FAST(gather),
    FAST(read_columns),
    FAST(pack_rows),
    FAST(pack_bodies),
    FAST(row_ids),
    {NULL, NULL, 0, NULL},
};

/* Grows with every change of what a function takes or gives: Python leaves a library alone that is not of its own revision. */
enum { REVISION = 11 };

static int prepare(PyObject *module) {
    prepare_crc();
    return PyModule_AddIntConstant(module, "REVISION", REVISION);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)prepare}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_turn", "The compiled twin of the broker's hot path.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__turn(void) { return PyModuleDef_Init(&definition); }
