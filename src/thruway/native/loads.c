/* The loads of a guard program. */
#include "guard.h"

static PyObject *tuple_item(PyObject *tuple, Py_ssize_t index)
{
    return tuple && PyTuple_Check(tuple) && index >= 0 && index < PyTuple_GET_SIZE(tuple) ? PyTuple_GET_ITEM(tuple, index) : NULL;
}

static PyObject *cell_contents(PyObject *function, int index)
{
    PyObject *cell = PyFunction_Check(function) ? tuple_item(PyFunction_GET_CLOSURE(function), index) : NULL;
    return cell && PyCell_Check(cell) ? PyCell_GET(cell) : NULL;
}

static PyObject *quiet_item(PyObject *dict, PyObject *key)
{
    PyObject *value = dict && PyDict_Check(dict) ? PyDict_GetItemWithError(dict, key) : NULL;
    if (!value)
        PyErr_Clear();
    return value;
}

static PyObject *instance_item(PyObject *base, PyObject *name)
{
    PyObject **slot = tw_dict_slot(base);
    return quiet_item(PyType_Check(base) ? ((PyTypeObject *)base)->tp_dict : slot ? *slot : NULL, name);
}

/* base[key] from the storage of a dict, list or tuple; through base's own __getitem__ for anything else */
static PyObject *item(PyObject *base, PyObject *key, Found *found)
{
    if (PyDict_Check(base))
        return quiet_item(base, key);
    if (!PyList_Check(base) && !PyTuple_Check(base)) {
        *found = FRESH;
        PyObject *value = PyObject_GetItem(base, key);
        if (!value)
            PyErr_Clear();
        return value;
    }
    Py_ssize_t size = Py_SIZE(base), index = PyLong_AsSsize_t(key);
    index += index < 0 ? size : 0;
    PyErr_Clear();
    return index < 0 || index >= size ? NULL : PyList_Check(base) ? PyList_GET_ITEM(base, index) : PyTuple_GET_ITEM(base, index);
}

static PyObject *dict_key(PyObject *dict, int index)
{
    Py_ssize_t at = 0;
    PyObject *key = NULL, *value;
    if (!PyDict_Check(dict) || PyODict_Check(dict) || index >= PyDict_GET_SIZE(dict))
        return NULL;
    while (index-- >= 0 && PyDict_Next(dict, &at, &key, &value))
        ;
    return key;
}

static PyObject *method_part(PyObject *method, StepCode code)
{
    if (!PyMethod_Check(method))
        return NULL;
    return code == LOAD_METHOD_SELF ? PyMethod_GET_SELF(method) : PyMethod_GET_FUNCTION(method);
}

static PyObject *get_attribute(PyObject *base, PyObject *name, Found *found)
{
    *found = FRESH;
    PyObject *value = PyObject_GetAttr(base, name);
    if (!value)
        PyErr_Clear();
    return value;
}

static PyObject *called(PyObject *function, PyObject *base, Found *found)
{
    *found = FRESH;
    PyObject *value = PyObject_CallOneArg(function, base);
    if (!value)
        PyErr_Clear();
    return value;
}

static PyObject *weak_target(PyObject *reference) { return PyWeakref_Check(reference) ? PyWeakref_GET_OBJECT(reference) : NULL; }

/* the dict behind a view of its keys, values or items */
static PyObject *viewed(PyObject *view)
{
    return PyDictKeys_Check(view) || PyDictValues_Check(view) || PyDictItems_Check(view) ? (PyObject *)((_PyDictViewObject *)view)->dv_dict : NULL;
}

static PyObject *load_root(const Step *step, const Call *call)
{
    PyFunctionObject *function = (PyFunctionObject *)call->function;
    switch (step->code) {
    case LOAD_LOCAL: return step->a < call->nlocals ? call->locals[step->a] : NULL;
    case LOAD_FUNCTION: return call->function;
    case LOAD_CONST: return step->arg;
    case LOAD_CELL: return cell_contents(call->function, step->a);
    case LOAD_GLOBALS: return function->func_globals;
    default: return function->func_builtins;
    }
}

/* A borrowed value (HELD), a new reference (METHOD, FRESH) or NULL; leaves no exception. */
PyObject *tw_load(const Step *step, const Call *call, PyObject *const *registers, Found *found)
{
    *found = HELD;
    if (tw_is_root(step->code))
        return load_root(step, call);
    PyObject *base = registers[step->a];
    PyFunctionObject *function = PyFunction_Check(base) ? (PyFunctionObject *)base : NULL;
    switch (step->code) {
    case LOAD_ATTR: return tw_attribute(base, step->arg, found);
    case LOAD_DICT_ATTR: return instance_item(base, step->arg);
    case LOAD_ITEM: return item(base, step->arg, found);
    case LOAD_DICT_KEY: return dict_key(base, step->b);
    case LOAD_TYPE: return (PyObject *)Py_TYPE(base);
    case LOAD_CLOSURE: return cell_contents(base, step->b);
    case LOAD_DEFAULT: return function ? tuple_item(function->func_defaults, step->b) : NULL;
    case LOAD_KWDEFAULT: return function ? quiet_item(function->func_kwdefaults, step->arg) : NULL;
    case LOAD_WEAK: return weak_target(base);
    case LOAD_METHOD_SELF:
    case LOAD_METHOD_FUNCTION: return method_part(base, step->code);
    case LOAD_FUNCTION_GLOBALS: return function ? function->func_globals : NULL;
    case LOAD_VIEWED: return viewed(base);
    case LOAD_CALL: return called(step->arg, base, found);
    default: return get_attribute(base, step->arg, found);
    }
}
