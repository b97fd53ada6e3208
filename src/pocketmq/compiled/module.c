/* The module `pocketmq.compiled._turn`: `Twin` of `compiled/__init__.py` describes the arguments and result of each function. */

#include "turn.h"

#define FAST(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}

static PyMethodDef methods[] = {
    FAST(split_whole),
    FAST(lay_out_sends),
    FAST(serve_pulls),
    FAST(pick_entries),
    FAST(read_acks),
    FAST(lay_out_lease),
    FAST(lease_messages),
    FAST(count_sound),
    FAST(read_keys),
    FAST(enter_keys),
    FAST(withdraw_keys),
    FAST(record_starts),
    FAST(read_properties),
    FAST(gather),
    FAST(read_columns),
    FAST(pack_rows),
    FAST(pack_bodies),
    FAST(row_ids),
    {NULL, NULL, 0, NULL},
};

/* Increases with every change of arguments or results: Python does not use a library of another revision. */
enum { REVISION = 15 };

static bool add_field(PyObject *fields, const char *name, size_t at, size_t bytes) {
    PyObject *field = Py_BuildValue("(snn)", name, (Py_ssize_t)at, (Py_ssize_t)bytes);
    const bool added = field && PyList_Append(fields, field) == 0;
    Py_XDECREF(field);
    return added;
}

/* The structs that C shares with Python, as lists of (name, offset, size), for the test that compares them. */
static bool add_layouts(PyObject *module) {
#define RECORD_FIELD(name, bytes) && add_field(record, #name, offsetof(RecordHead, name), bytes)
#define ENTRY_FIELD(name, bytes) && add_field(entry, #name, offsetof(QueueEntry, name), bytes)
    PyObject *record = PyList_New(0), *entry = PyList_New(0);
    const bool added = record && entry RECORD_FIELDS(RECORD_FIELD) ENTRY_FIELDS(ENTRY_FIELD) &&
                       PyModule_AddObjectRef(module, "RECORD_FIELDS", record) == 0 && PyModule_AddObjectRef(module, "ENTRY_FIELDS", entry) == 0;
    Py_XDECREF(record);
    Py_XDECREF(entry);
    return added;
}

static int prepare(PyObject *module) {
    prepare_processor();
    prepare_crc();
    return add_layouts(module) ? PyModule_AddIntConstant(module, "REVISION", REVISION) : -1;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)prepare}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_turn", "C twins of the broker's hot path and of the Spark connector.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__turn(void) { return PyModuleDef_Init(&definition); }
