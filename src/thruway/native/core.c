/* Module init of thruway.native._core: each file registers its own types and functions. */
#include "core.h"
#include "dispatch.h"
#include "tensor.h"

PyObject *tw_region_failed;

int tw_launch_init(PyObject *module); /* launch.c */

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "thruway.native._core", "Guards, dispatch, the frame hook and launch, in C.", -1, NULL, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__core(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (!module)
        return NULL;
    tw_region_failed = PyErr_NewExceptionWithDoc("thruway.native.RegionFailed", "A compiled region gave up before any effect; the caller runs eager.", NULL, NULL);
    if (!tw_region_failed || PyModule_AddObjectRef(module, "RegionFailed", tw_region_failed) < 0)
        goto failed;
    if (tw_tensor_init(module) < 0 || tw_state_init(module) < 0 || tw_lookup_init(module) < 0 || tw_guard_init(module) < 0
        || tw_dispatch_init(module) < 0 || tw_hook_init(module) < 0)
        goto failed;
    if (tw_launch_init(module) < 0)
        goto failed;
    return module;
failed:
    Py_DECREF(module);
    return NULL;
}
