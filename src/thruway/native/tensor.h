/* Tensors without torch's headers: the C shim found by name in the loaded libtorch, and a few offsets that Python
   probes once (native/probe.py) and hands over through set_layout. Everything here is borrowed and holds the GIL. */
#ifndef TW_TENSOR_H
#define TW_TENSOR_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

typedef void *TensorHandle; /* an AtenTensorHandle, that is at::Tensor* */
typedef int32_t ShimError;  /* 0: fine */

typedef struct {
    ShimError (*get_data_ptr)(TensorHandle, void **);
    ShimError (*get_dim)(TensorHandle, int64_t *);
    ShimError (*get_numel)(TensorHandle, int64_t *);
    ShimError (*get_sizes)(TensorHandle, int64_t **);
    ShimError (*get_strides)(TensorHandle, int64_t **);
    ShimError (*get_dtype)(TensorHandle, int32_t *);
    ShimError (*get_device_type)(TensorHandle, int32_t *);
    ShimError (*get_device_index)(TensorHandle, int32_t *);
    ShimError (*get_storage_offset)(TensorHandle, int64_t *);
    ShimError (*get_storage_size)(TensorHandle, int64_t *);
    ShimError (*delete_tensor_object)(TensorHandle);
    ShimError (*new_tensor_handle)(TensorHandle, TensorHandle *);
    ShimError (*empty_strided)(int64_t ndim, const int64_t *sizes, const int64_t *strides, int32_t dtype, int32_t device_type,
                               int32_t device_index, TensorHandle *);
    ShimError (*reinterpret_tensor)(TensorHandle, int64_t ndim, const int64_t *sizes, const int64_t *strides, int64_t offset,
                                    TensorHandle *);
    size_t (*dtype_element_size)(int32_t dtype);
    bool (*grad_mode_is_enabled)(void);
    void (*grad_mode_set_enabled)(bool);
    ShimError (*call_dispatcher)(const char *op, const char *overload, uint64_t *stack);
    PyObject *(*wrap_moved)(TensorHandle); /* torch's own THPVariable_Wrap(at::TensorBase &&): 60 ns less than the next; else NULL */
    ShimError (*to_pyobject)(TensorHandle, void *type, void **); /* 2.14 and later, else NULL */
} TorchShim;

/* Byte offsets; -1 where the probe found none. `handle` counts from the PyObject, `requires_grad`, `grad_fn` and
   `forward_grad` from the AutogradMeta, `version` from the version counter object, the others from the TensorImpl. */
typedef struct {
    int handle, keys, autograd_meta, requires_grad, grad_fn, forward_grad, version_counter, version, geometry, dtype, device;
    void *plain_autograd; /* first word (vtable) of an AutogradMeta that belongs to no view */
} TensorLayout;

extern TorchShim tw_shim;
extern TensorLayout tw_layout;
extern PyTypeObject *tw_tensor_type, *tw_parameter_type, *tw_tensor_base; /* torch.Tensor, nn.Parameter, torch._C.TensorBase; NULL until bind_torch */

int tw_tensor_init(PyObject *module);
void *tw_symbol(const char *name);                    /* a symbol of libtorch_cpu, libc10 or libtorch_python; NULL if absent */
PyObject *tw_wrap(TensorHandle handle);               /* steals the handle; new reference, or NULL with an exception */
int tw_requires_grad_slow(PyObject *tensor);          /* through torch's own getter; -1 with an exception */
ShimError tw_check(ShimError error, const char *what); /* sets RuntimeError where error is not 0 */

/* ready: the shim and the offsets without which nothing native may touch a tensor are there */
static inline int tw_tensors_ready(void) { return tw_tensor_type && tw_layout.handle >= 0 && tw_layout.keys >= 0 && tw_layout.autograd_meta >= 0 && tw_layout.forward_grad >= 0; }

/* exactly torch.Tensor or torch.nn.Parameter: the only types whose memory is read without asking torch */
static inline int tw_is_plain_tensor(PyObject *o) { return Py_TYPE(o) == tw_tensor_type || Py_TYPE(o) == tw_parameter_type; }
static inline int tw_is_tensor(PyObject *o) { return tw_is_plain_tensor(o) || (tw_tensor_base && PyObject_TypeCheck(o, tw_tensor_base)); }

static inline TensorHandle tw_handle(PyObject *tensor) { return (char *)tensor + tw_layout.handle; }
static inline char *tw_impl(TensorHandle handle) { return *(char **)handle; }
static inline uint64_t tw_keys(char *impl) { return *(uint64_t *)(impl + tw_layout.keys); }

static inline int tw_requires_grad(PyObject *tensor)
{
    char *meta = *(char **)(tw_impl(tw_handle(tensor)) + tw_layout.autograd_meta);
    if (meta == NULL)
        return 0;
    if (tw_layout.requires_grad >= 0) {
        if (meta[tw_layout.requires_grad])
            return 1;
        if (tw_layout.grad_fn >= 0 && *(void **)meta == tw_layout.plain_autograd)
            return *(void **)(meta + tw_layout.grad_fn) != NULL;
    }
    return tw_requires_grad_slow(tensor);
}

/* whether forward-mode differentiation has (or had) a tangent for it */
static inline int tw_has_tangent(TensorHandle handle)
{
    char *meta = *(char **)(tw_impl(handle) + tw_layout.autograd_meta);
    return meta && *(void **)(meta + tw_layout.forward_grad) != NULL;
}

/* sizes and strides, borrowed until the tensor's layout changes; 0, or the shim's error */
static inline ShimError tw_geometry(TensorHandle handle, int64_t *ndim, const int64_t **sizes, const int64_t **strides)
{
    if (tw_layout.geometry >= 0) {
        const int64_t *words = (const int64_t *)(tw_impl(handle) + tw_layout.geometry);
        if (words[0] <= 5) {
            *ndim = words[0];
            *sizes = words + 1;
            *strides = words + 6;
            return 0;
        }
    }
    return tw_shim.get_dim(handle, ndim) | tw_shim.get_sizes(handle, (int64_t **)sizes) | tw_shim.get_strides(handle, (int64_t **)strides);
}

static inline int32_t tw_dtype(TensorHandle handle)
{
    int32_t dtype = -1;
    if (tw_layout.dtype >= 0)
        return *(uint16_t *)(tw_impl(handle) + tw_layout.dtype);
    tw_shim.get_dtype(handle, &dtype);
    return dtype;
}

/* (device type << 8) | (index & 255), as one comparable number */
static inline int32_t tw_device(TensorHandle handle)
{
    int32_t type = -1, index = -1;
    if (tw_layout.device >= 0) {
        const uint8_t *at = (const uint8_t *)(tw_impl(handle) + tw_layout.device);
        return at[0] << 8 | at[1];
    }
    tw_shim.get_device_type(handle, &type);
    tw_shim.get_device_index(handle, &index);
    return type << 8 | (index & 255);
}

static inline void *tw_data(TensorHandle handle)
{
    void *data = NULL;
    tw_shim.get_data_ptr(handle, &data);
    return data;
}

/* where autograd's version number stands; NULL for inference tensors, or where the probe found none */
static inline uint32_t *tw_version(TensorHandle handle)
{
    if (tw_layout.version < 0)
        return NULL;
    char *counter = *(char **)(tw_impl(handle) + tw_layout.version_counter);
    return counter ? (uint32_t *)(counter + tw_layout.version) : NULL;
}
#endif
