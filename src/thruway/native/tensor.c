/* The shim table, the probed layout, and the Python functions that fill and read them. */
#include "tensor.h"
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

TorchShim tw_shim;
TensorLayout tw_layout = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, NULL};
PyTypeObject *tw_tensor_type, *tw_parameter_type, *tw_tensor_base;
static void *libraries[4];
static PyObject *steal_from_pointer; /* torch._C._aoti.alloc_tensor_by_stealing_from_void_ptr */
static int steal_keeps_handle;       /* whether it, despite its name, leaves the handle to us (torch 2.11) */
static getter requires_grad_getter;
static void *requires_grad_closure;

void *tw_symbol(const char *name)
{
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        void *found = libraries[i] ? dlsym(libraries[i], name) : NULL;
        if (found)
            return found;
    }
    return NULL;
}

ShimError tw_check(ShimError error, const char *what)
{
    if (error && !PyErr_Occurred())
        PyErr_Format(PyExc_RuntimeError, "torch refused %s", what);
    return error;
}

PyObject *tw_wrap(TensorHandle handle)
{
    if (tw_shim.wrap_moved) {
        PyObject *result = tw_shim.wrap_moved(handle);
        tw_shim.delete_tensor_object(handle);
        return result;
    }
    if (tw_shim.to_pyobject) {
        void *result = NULL;
        ShimError error = tw_shim.to_pyobject(handle, NULL, &result);
        tw_shim.delete_tensor_object(handle);
        return tw_check(error, "to wrap a tensor") ? NULL : (PyObject *)result;
    }
    PyObject *capsule = PyCapsule_New(handle, NULL, NULL);
    PyObject *result = capsule ? PyObject_CallOneArg(steal_from_pointer, capsule) : NULL;
    Py_XDECREF(capsule);
    if (!result || steal_keeps_handle)
        tw_shim.delete_tensor_object(handle);
    return result;
}

int tw_requires_grad_slow(PyObject *tensor)
{
    PyObject *value = requires_grad_getter(tensor, requires_grad_closure);
    if (!value)
        return -1;
    Py_DECREF(value);
    return value == Py_True;
}

/* Wraps one tensor and counts its owners: a second one is the handle that was left. */
static int test_steal(void)
{
    int64_t size = 1, stride = 1;
    TensorHandle handle;
    if (tw_check(tw_shim.empty_strided(1, &size, &stride, 6, 0, 0, &handle), "to allocate"))
        return -1;
    PyObject *tensor = tw_wrap(handle), *owners = tensor ? PyObject_CallMethod(tensor, "_use_count", NULL) : NULL;
    if (owners && PyLong_AsLong(owners) > 1) {
        steal_keeps_handle = 1;
        tw_shim.delete_tensor_object(handle);
    }
    Py_XDECREF(tensor);
    Py_XDECREF(owners);
    return owners ? 0 : -1;
}

typedef struct { const char *name; void *slot; int needed; } ShimRow;

static int fill_shim(void)
{
    ShimRow rows[] = {
        {"aoti_torch_get_data_ptr", &tw_shim.get_data_ptr, 1},
        {"aoti_torch_get_dim", &tw_shim.get_dim, 1},
        {"aoti_torch_get_numel", &tw_shim.get_numel, 1},
        {"aoti_torch_get_sizes", &tw_shim.get_sizes, 1},
        {"aoti_torch_get_strides", &tw_shim.get_strides, 1},
        {"aoti_torch_get_dtype", &tw_shim.get_dtype, 1},
        {"aoti_torch_get_device_type", &tw_shim.get_device_type, 1},
        {"aoti_torch_get_device_index", &tw_shim.get_device_index, 1},
        {"aoti_torch_get_storage_offset", &tw_shim.get_storage_offset, 1},
        {"aoti_torch_get_storage_size", &tw_shim.get_storage_size, 1},
        {"aoti_torch_delete_tensor_object", &tw_shim.delete_tensor_object, 1},
        {"aoti_torch_new_tensor_handle", &tw_shim.new_tensor_handle, 1},
        {"aoti_torch_empty_strided", &tw_shim.empty_strided, 1},
        {"aoti_torch__reinterpret_tensor", &tw_shim.reinterpret_tensor, 1},
        {"aoti_torch_dtype_element_size", &tw_shim.dtype_element_size, 1},
        {"aoti_torch_grad_mode_is_enabled", &tw_shim.grad_mode_is_enabled, 1},
        {"aoti_torch_grad_mode_set_enabled", &tw_shim.grad_mode_set_enabled, 1},
        {"aoti_torch_call_dispatcher", &tw_shim.call_dispatcher, 1},
        {"_Z16THPVariable_WrapON2at10TensorBaseE", &tw_shim.wrap_moved, 0},
        {"torch_tensor_to_pyobject", &tw_shim.to_pyobject, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        *(void **)rows[i].slot = tw_symbol(rows[i].name);
        if (rows[i].needed && !*(void **)rows[i].slot) {
            PyErr_Format(PyExc_ImportError, "libtorch has no %s", rows[i].name);
            return -1;
        }
    }
    return 0;
}

static int find_getter(PyTypeObject *type)
{
    for (; type; type = type->tp_base) {
        PyObject *found = type->tp_dict ? PyDict_GetItemString(type->tp_dict, "requires_grad") : NULL;
        if (found && Py_TYPE(found) == &PyGetSetDescr_Type) {
            requires_grad_getter = ((PyGetSetDescrObject *)found)->d_getset->get;
            requires_grad_closure = ((PyGetSetDescrObject *)found)->d_getset->closure;
            return 0;
        }
    }
    PyErr_SetString(PyExc_ImportError, "torch.Tensor.requires_grad is not a C getter");
    return -1;
}

/* bind_torch(library paths, Tensor, Parameter, TensorBase, stealing function): finds the shim. ImportError names what is missing. */
static PyObject *bind_torch(PyObject *module, PyObject *args)
{
    PyObject *paths, *tensor, *parameter, *base, *steal;
    if (!PyArg_ParseTuple(args, "O!O!O!O!O", &PyTuple_Type, &paths, &PyType_Type, &tensor, &PyType_Type, &parameter, &PyType_Type, &base, &steal))
        return NULL;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(paths) && i < 4; i++) {
        const char *path = PyUnicode_AsUTF8(PyTuple_GET_ITEM(paths, i));
        if (!path)
            return NULL;
        libraries[i] = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    }
    if (fill_shim() < 0 || find_getter((PyTypeObject *)tensor) < 0)
        return NULL;
    Py_XSETREF(steal_from_pointer, Py_NewRef(steal));
    steal_keeps_handle = 0;
    if (!tw_shim.wrap_moved && !tw_shim.to_pyobject && test_steal() < 0)
        return NULL;
    Py_XSETREF(tw_tensor_type, (PyTypeObject *)Py_NewRef(tensor));
    Py_XSETREF(tw_parameter_type, (PyTypeObject *)Py_NewRef(parameter));
    Py_XSETREF(tw_tensor_base, (PyTypeObject *)Py_NewRef(base));
    Py_RETURN_NONE;
}

/* peek(address, count) → bytes, or None where that memory cannot be read: the kernel copies it, so a wrong guess does not crash. */
static PyObject *peek(PyObject *module, PyObject *args)
{
    unsigned long long address;
    int count, ends[2];
    if (!PyArg_ParseTuple(args, "Ki", &address, &count))
        return NULL;
    if (pipe(ends) < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    PyObject *result = NULL;
    if (write(ends[1], (void *)(uintptr_t)address, (size_t)count) == count) {
        result = PyBytes_FromStringAndSize(NULL, count);
        if (result && read(ends[0], PyBytes_AS_STRING(result), (size_t)count) != count)
            Py_CLEAR(result);
    }
    close(ends[0]);
    close(ends[1]);
    return result || PyErr_Occurred() ? result : Py_NewRef(Py_None);
}

static PyObject *set_layout(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"handle", "keys", "autograd_meta", "requires_grad", "grad_fn", "forward_grad", "version_counter",
                            "version", "geometry", "dtype", "device", "plain_autograd", NULL};
    TensorLayout l;
    unsigned long long plain;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iiiiiiiiiiiK", names, &l.handle, &l.keys, &l.autograd_meta, &l.requires_grad, &l.grad_fn, &l.forward_grad,
                                     &l.version_counter, &l.version, &l.geometry, &l.dtype, &l.device, &plain))
        return NULL;
    l.plain_autograd = (void *)(uintptr_t)plain;
    tw_layout = l;
    Py_RETURN_NONE;
}

static PyObject *as_tuple(const int64_t *values, int64_t count)
{
    PyObject *result = PyTuple_New(count);
    for (int64_t i = 0; result && i < count; i++) {
        PyObject *number = PyLong_FromLongLong(values[i]);
        if (!number)
            Py_CLEAR(result);
        else
            PyTuple_SET_ITEM(result, i, number);
    }
    return result;
}

static PyObject *need_tensor(PyObject *o)
{
    if (!tw_tensors_ready())
        return PyErr_Format(PyExc_RuntimeError, "the native core was not bound to torch");
    if (!tw_is_tensor(o))
        return PyErr_Format(PyExc_TypeError, "expected a tensor, not %.80s", Py_TYPE(o)->tp_name);
    return o;
}

/* describe(tensor) → (sizes, strides, dtype code, device code, requires_grad, key set, data pointer, version or -1): what C reads */
static PyObject *describe(PyObject *module, PyObject *tensor)
{
    if (!need_tensor(tensor))
        return NULL;
    TensorHandle handle = tw_handle(tensor);
    int64_t ndim;
    const int64_t *sizes, *strides;
    if (tw_check(tw_geometry(handle, &ndim, &sizes, &strides), "the sizes of a tensor"))
        return NULL;
    int grad = tw_requires_grad(tensor);
    if (grad < 0)
        return NULL;
    uint32_t *version = tw_version(handle);
    return Py_BuildValue("NNiiOKKL", as_tuple(sizes, ndim), as_tuple(strides, ndim), tw_dtype(handle), tw_device(handle), grad ? Py_True : Py_False,
                         (unsigned long long)tw_keys(tw_impl(handle)), (unsigned long long)(uintptr_t)tw_data(handle), version ? (long long)*version : -1LL);
}

static int read_numbers(PyObject *tuple, int64_t *into, Py_ssize_t limit)
{
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) > limit) {
        PyErr_SetString(PyExc_TypeError, "expected a tuple of at most 64 integers");
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++)
        into[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i));
    return PyErr_Occurred() ? -1 : (int)PyTuple_GET_SIZE(tuple);
}

/* empty_strided(sizes, strides, dtype code, device code) → tensor */
static PyObject *empty_strided(PyObject *module, PyObject *args)
{
    PyObject *sizes, *strides;
    int dtype, device = 0;
    int64_t size[64], stride[64];
    TensorHandle handle;
    if (!PyArg_ParseTuple(args, "OOi|i", &sizes, &strides, &dtype, &device))
        return NULL;
    if (!tw_tensors_ready())
        return PyErr_Format(PyExc_RuntimeError, "the native core was not bound to torch");
    int ndim = read_numbers(sizes, size, 64);
    if (ndim < 0 || read_numbers(strides, stride, 64) != ndim)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "sizes and strides differ in length");
    if (tw_check(tw_shim.empty_strided(ndim, size, stride, dtype, device >> 8, (int8_t)(device & 255), &handle), "to allocate"))
        return NULL;
    return tw_wrap(handle);
}

/* bump_version(tensor): tells autograd that the tensor was written. False where the counter cannot be reached from here. */
static PyObject *bump_version(PyObject *module, PyObject *tensor)
{
    if (!need_tensor(tensor))
        return NULL;
    uint32_t *version = tw_version(tw_handle(tensor));
    if (version)
        __atomic_fetch_add(version, 1, __ATOMIC_RELAXED);
    return PyBool_FromLong(version != NULL);
}

static PyMethodDef methods[] = {
    {"bind_torch", bind_torch, METH_VARARGS, "Finds the C shim of the loaded torch."},
    {"peek", peek, METH_VARARGS, "Reads memory that may not exist."},
    {"set_layout", (PyCFunction)(void (*)(void))set_layout, METH_VARARGS | METH_KEYWORDS, "Takes the probed offsets."},
    {"describe", describe, METH_O, "What the native core reads of a tensor."},
    {"empty_strided", empty_strided, METH_VARARGS, "A fresh tensor of these sizes and strides."},
    {"bump_version", bump_version, METH_O, "Adds one to autograd's version number."},
    {NULL, NULL, 0, NULL},
};

int tw_tensor_init(PyObject *module) { return PyModule_AddFunctions(module, methods); }
