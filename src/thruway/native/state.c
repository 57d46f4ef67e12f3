/* Reads torch's modes through exported functions of libc10 and libtorch_cpu, found by their C++ names. Where one is
   missing, a Python callable gives the same bytes instead (set_state_reader). */
#include "state.h"
#include "tensor.h"

static bool (*grad_is_enabled)(void);
static uint16_t (*get_default_dtype)(void);
static int64_t (*function_stack_length)(void);
static int8_t (*get_autocast_dtype)(int8_t device);
static void *(*global_context)(void);
static bool (*is_deterministic)(const void *context);
static bool (*warns_only)(const void *context);
static __thread const uint64_t *thread_keys; /* this thread's {included, excluded} */
static PyObject *reader;

#define KEYS_SYMBOL "_ZN3c104impl26raw_local_dispatch_key_setE"

/* bind_state() → whether every function was found, so that the state is read natively */
static PyObject *bind_state(PyObject *module, PyObject *unused)
{
    grad_is_enabled = (bool (*)(void))tw_symbol("_ZN3c108GradMode10is_enabledEv");
    get_default_dtype = (uint16_t (*)(void))tw_symbol("_ZN3c1017get_default_dtypeEv");
    function_stack_length = (int64_t (*)(void))tw_symbol("_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv");
    get_autocast_dtype = (int8_t (*)(int8_t))tw_symbol("_ZN2at8autocast18get_autocast_dtypeEN3c1010DeviceTypeE");
    global_context = (void *(*)(void))tw_symbol("_ZN2at13globalContextEv");
    is_deterministic = (bool (*)(const void *))tw_symbol("_ZNK2at7Context23deterministicAlgorithmsEv");
    warns_only = (bool (*)(const void *))tw_symbol("_ZNK2at7Context31deterministicAlgorithmsWarnOnlyEv");
    int found = grad_is_enabled && get_default_dtype && function_stack_length && get_autocast_dtype && global_context && is_deterministic && warns_only
        && tw_symbol(KEYS_SYMBOL);
    if (!found)
        grad_is_enabled = NULL;
    return PyBool_FromLong(found);
}

static PyObject *set_state_reader(PyObject *module, PyObject *callable)
{
    Py_XSETREF(reader, Py_NewRef(callable));
    grad_is_enabled = NULL;
    Py_RETURN_NONE;
}

static int ask_reader(TorchState *state)
{
    PyObject *bytes = reader ? PyObject_CallNoArgs(reader) : (PyErr_SetString(PyExc_RuntimeError, "torch's state cannot be read"), NULL);
    if (!bytes)
        return -1;
    if (PyBytes_Check(bytes))
        memcpy(state, PyBytes_AS_STRING(bytes), Py_MIN(sizeof *state, (size_t)PyBytes_GET_SIZE(bytes)));
    Py_DECREF(bytes);
    return 0;
}

int tw_read_state(TorchState *state)
{
    memset(state, 0, sizeof *state);
    if (UNLIKELY(!grad_is_enabled))
        return ask_reader(state);
    if (UNLIKELY(!thread_keys))
        thread_keys = tw_symbol(KEYS_SYMBOL); /* dlsym of a thread-local variable gives the calling thread's own */
    state->included = thread_keys[0];
    state->excluded = thread_keys[1];
    state->grad = grad_is_enabled();
    state->default_dtype = get_default_dtype();
    state->function_modes = function_stack_length();
    state->cpu_autocast = get_autocast_dtype(0);
    state->cuda_autocast = get_autocast_dtype(1);
    void *context = global_context();
    state->deterministic = (int8_t)(is_deterministic(context) | warns_only(context) << 1);
    return 0;
}

/* read_state() → bytes that are equal where all modes are */
static PyObject *read_state(PyObject *module, PyObject *unused)
{
    TorchState state;
    return tw_read_state(&state) < 0 ? NULL : PyBytes_FromStringAndSize((char *)&state, sizeof state);
}

static PyMethodDef methods[] = {
    {"bind_state", bind_state, METH_NOARGS, "Finds the functions that read torch's modes; whether all are there."},
    {"set_state_reader", set_state_reader, METH_O, "Takes a callable that gives the state as bytes, used instead."},
    {"read_state", read_state, METH_NOARGS, "The torch modes of this thread as bytes."},
    {NULL, NULL, 0, NULL},
};

int tw_state_init(PyObject *module) { return PyModule_AddFunctions(module, methods); }
