/* Runs the steps of a Program. */
#include "program.h"
#include <string.h>

static void set_object(Frame *f, Py_ssize_t slot, PyObject *object)
{
    Py_XSETREF(f->object[slot], object);
    f->address[slot] = tw_data(tw_handle(object));
}

static int bump(PyObject *tensor)
{
    uint32_t *version = tw_version(tw_handle(tensor));
    if (LIKELY(version != NULL)) {
        __atomic_fetch_add(version, 1, __ATOMIC_RELAXED);
        return 0;
    }
    PyObject *done = PyObject_CallOneArg(tw_bump_version, tensor); /* an inference tensor, or no offset was found */
    Py_XDECREF(done);
    return done ? 0 : -1;
}

static int run_kernel(KernelStep *s, Frame *f, int *wrote)
{
    for (Py_ssize_t i = 0; i < s->slots.count; i++)
        f->pointers[i] = f->address[s->slots.at[i]];
    for (Py_ssize_t i = 0; i < s->bumps.count; i++)
        if (bump(f->object[s->bumps.at[i]]) < 0)
            return -1;
    int failed;
    if (s->releases) {
        Py_BEGIN_ALLOW_THREADS
        failed = s->function(f->pointers, (const long long *)s->sizes.at);
        Py_END_ALLOW_THREADS
    } else
        failed = s->function(f->pointers, (const long long *)s->sizes.at);
    if (UNLIKELY(failed)) {
        PyErr_Format(tw_region_failed, "check %d of %U failed", failed, s->name);
        return -1;
    }
    *wrote |= s->writes;
    return 0;
}

enum { ALIGNED = 16 }; /* kernels are compiled for addresses that are multiples of it */

/* In the context of the program's device: the calling thread may have another current, or none so far, and keeps it. */
static int launch_kernel(LaunchStep *s, void **arguments)
{
    void *stream, *current = NULL;
    if (tw_check(s->cuda.stream(s->device, &stream), "the current stream"))
        return -1;
    int code = s->cuda.current(&current), elsewhere = current != s->context;
    if (UNLIKELY(elsewhere) && !code)
        code = s->cuda.push(s->context);
    if (UNLIKELY(code)) {
        PyErr_Format(PyExc_RuntimeError, "entering the device of %U: CUDA error %d", s->name, code);
        return -1;
    }
    code = s->cuda.launch(s->function, s->programs, 1, 1, s->threads, 1, 1, s->shared, stream, arguments, NULL);
    if (UNLIKELY(elsewhere))
        s->cuda.pop(&current);
    if (UNLIKELY(code))
        PyErr_Format(PyExc_RuntimeError, "launching %U: CUDA error %d", s->name, code);
    return code ? -1 : 0;
}

static int run_launch(LaunchStep *s, Frame *f, int *wrote)
{
    void *arguments[s->slots.count + s->words.count + 1];
    for (Py_ssize_t i = 0; i < s->slots.count; i++) {
        f->pointers[i] = f->address[s->slots.at[i]];
        arguments[i] = &f->pointers[i];
        if (UNLIKELY((uintptr_t)f->pointers[i] % ALIGNED)) {
            PyErr_Format(tw_region_failed, "a tensor that %U reads is not aligned", s->name);
            return -1;
        }
    }
    for (Py_ssize_t i = 0; i < s->words.count; i++)
        arguments[s->slots.count + i] = &s->words.at[i];
    if (s->programs && launch_kernel(s, arguments) < 0)
        return -1;
    *wrote |= s->writes;
    for (Py_ssize_t i = 0; i < s->bumps.count; i++)
        if (bump(f->object[s->bumps.at[i]]) < 0)
            return -1;
    return 0;
}

static int run_fresh(FreshStep *s, Frame *f)
{
    TensorHandle handle;
    Layout *l = &s->layout;
    ShimError error = tw_shim.empty_strided(l->sizes.count, l->sizes.at, l->strides.at, l->dtype, l->device >> 8, (int8_t)(l->device & 255), &handle);
    PyObject *tensor = tw_check(error, "to allocate an output") ? NULL : tw_wrap(handle);
    if (!tensor)
        return -1;
    set_object(f, s->slot, tensor);
    return 0;
}

/* a view that leaves the call, or is written through: torch's own, so that autograd knows its base */
static PyObject *real_view(ViewStep *s, PyObject *base, int64_t offset, int grad_mode)
{
    PyObject *start = PyLong_FromLongLong(offset);
    if (!start)
        return NULL;
    PyObject *arguments[] = {base, s->sizes, s->strides, start};
    if (grad_mode)
        tw_shim.grad_mode_set_enabled(true);
    PyObject *view = PyObject_Vectorcall(tw_as_strided, arguments, 4, NULL);
    if (grad_mode)
        tw_shim.grad_mode_set_enabled(false);
    Py_DECREF(start);
    return view;
}

static int run_view(ViewStep *s, Frame *f, int grad_mode)
{
    f->address[s->slot] = (char *)f->address[s->base] + s->bytes;
    if (!s->object)
        return 0;
    int64_t offset = 0;
    TensorHandle base = tw_handle(f->object[s->base]), handle;
    if (tw_check(tw_shim.get_storage_offset(base, &offset), "the offset of a tensor"))
        return -1;
    PyObject *view = NULL;
    if (s->leaves)
        view = real_view(s, f->object[s->base], offset + s->elements, grad_mode);
    else if (!tw_check(tw_shim.reinterpret_tensor(base, s->layout.sizes.count, s->layout.sizes.at, s->layout.strides.at, s->elements, &handle), "a view"))
        view = tw_wrap(handle);         /* whose offset counts from the base's first element */
    if (!view)
        return -1;
    Py_XSETREF(f->object[s->slot], view);
    return 0;
}

static PyObject *make_argument(Argument *a, Frame *f)
{
    if (a->kind != LIST)
        return Py_NewRef(a->kind == SLOT ? f->object[a->slot] : a->constant);
    PyObject *list = PyList_New(a->count);
    for (Py_ssize_t i = 0; list && i < a->count; i++) {
        PyObject *item = make_argument(&a->items[i], f);
        if (!item)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, item);
    }
    return list;
}

static PyObject *call_torch(CallStep *s, Frame *f)
{
    PyObject *arguments[s->count + 1];
    Py_ssize_t made = 0;
    PyObject *result = NULL;
    while (made < s->count && (arguments[made] = make_argument(&s->arguments[made], f)))
        made++;
    if (made == s->count)
        result = PyObject_Vectorcall(s->callable, arguments, s->count - PyTuple_GET_SIZE(s->keywords), PyTuple_GET_SIZE(s->keywords) ? s->keywords : NULL);
    while (made)
        Py_DECREF(arguments[--made]);
    return result;
}

static int is_expected(PyObject *tensor, Layout *l)
{
    int64_t ndim;
    const int64_t *sizes, *strides;
    TensorHandle handle = tw_handle(tensor);
    if (tw_geometry(handle, &ndim, &sizes, &strides) || ndim != l->sizes.count || tw_dtype(handle) != l->dtype)
        return 0;
    for (int64_t i = 0; i < ndim; i++)
        if (sizes[i] != l->sizes.at[i] || (strides[i] != l->strides.at[i] && sizes[i] > 1))
            return 0;
    return 1;
}

static int take_result(CallStep *s, Frame *f, Py_ssize_t i, PyObject *value)
{
    if (value == Py_None)
        return 0;
    if (!tw_is_tensor(value) || (s->expected && !is_expected(value, &s->expected[i]))) {
        PyErr_Format(tw_region_failed, "%R gave another layout than the plan counts on", s->callable);
        return -1;
    }
    set_object(f, s->outs.at[i], Py_NewRef(value));
    return 0;
}

static int run_call(CallStep *s, Frame *f, int *wrote)
{
    *wrote |= s->writes; /* also where it fails: it may have written half of it */
    PyObject *result = call_torch(s, f);
    if (!result)
        return -1;
    int bad = 0;
    if (s->outs.count == 1 && !PyTuple_Check(result) && !PyList_Check(result))
        bad = take_result(s, f, 0, result);
    else if (s->outs.count) {
        PyObject *values = PySequence_Fast(result, "an operator with several outputs returns a sequence");
        bad = !values || PySequence_Fast_GET_SIZE(values) < s->outs.count;
        if (values && bad)
            PyErr_Format(tw_region_failed, "%R gave too few outputs", s->callable);
        for (Py_ssize_t i = 0; !bad && i < s->outs.count; i++)
            bad = take_result(s, f, i, PySequence_Fast_GET_ITEM(values, i));
        Py_XDECREF(values);
    }
    Py_DECREF(result);
    return bad ? -1 : 0;
}

typedef ShimError (*Product)(TensorHandle out, TensorHandle a, TensorHandle b);
typedef ShimError (*AddedProduct)(TensorHandle out, TensorHandle self, TensorHandle a, TensorHandle b, double beta, double alpha);

static ShimError multiply(ShimStep *s, TensorHandle *h)
{
    if (s->slots.count == 3)
        return ((Product)s->function)(h[0], h[1], h[2]);
    return ((AddedProduct)s->function)(h[0], h[1], h[2], h[3], s->scalars[0], s->scalars[1]);
}

/* a matrix product, below the dispatcher */
static int run_shim(ShimStep *s, Frame *f)
{
    TensorHandle h[4];
    ShimError error;
    for (Py_ssize_t i = 0; i < s->slots.count; i++)
        h[i] = tw_handle(f->object[s->slots.at[i]]);
    if (s->releases) {
        Py_BEGIN_ALLOW_THREADS
        error = multiply(s, h);
        Py_END_ALLOW_THREADS
    } else
        error = multiply(s, h);
    return tw_check(error, "a matrix product") ? -1 : 0;
}

static int run_step(Step *step, Frame *f, int grad_mode, int *wrote)
{
    switch (step->kind) {
    case KERNEL: return run_kernel(&step->kernel, f, wrote);
    case FRESH: return run_fresh(&step->fresh, f);
    case VIEW: return run_view(&step->view, f, grad_mode);
    case CALL: return run_call(&step->call, f, wrote);
    case SHIM: return run_shim(&step->shim, f);
    case LAUNCH: return run_launch(&step->launch, f, wrote);
    default:
        for (Py_ssize_t i = 0; i < step->drop.count; i++)
            Py_CLEAR(f->object[step->drop.at[i]]);
        return 0;
    }
}

/* The error of a step becomes RegionFailed, with the error as its cause: the caller runs eager, which raises its own.
   Once an input was written, or on an interrupt, the error stays as it is: running again would write twice. */
void tw_fail_region(int wrote)
{
    if (wrote || PyErr_ExceptionMatches(tw_region_failed) || !PyErr_ExceptionMatches(PyExc_Exception))
        return;
    PyObject *type, *value, *traceback, *failure;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    failure = PyObject_CallFunction(tw_region_failed, "O", value);
    if (failure) {
        PyException_SetCause(failure, Py_NewRef(value));
        PyErr_SetObject(tw_region_failed, failure);
        Py_DECREF(failure);
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
}

static PyObject *collect(Program *p, Frame *f)
{
    PyObject *result = PyTuple_New(p->outputs.count);
    for (Py_ssize_t i = 0; result && i < p->outputs.count; i++) {
        PyObject *output = f->object[p->outputs.at[i]];
        if (UNLIKELY(!output)) {
            PyErr_Format(tw_region_failed, "output %zd was never made", i);
            Py_CLEAR(result);
        } else
            PyTuple_SET_ITEM(result, i, Py_NewRef(output));
    }
    return result;
}

typedef struct { int grad; uint64_t autocast; } Modes;

static uint64_t *excluded_keys(void)
{
    static __thread uint64_t *keys; /* this thread's {included, excluded} */
    if (UNLIKELY(!keys))
        keys = tw_symbol(TW_KEYS_SYMBOL);
    return keys + 1;
}

/* Operators called here record no gradient and cast nothing: capture has done both. */
static Modes leave_modes(void)
{
    uint64_t *excluded = excluded_keys();
    Modes modes = {tw_shim.grad_mode_is_enabled(), *excluded & tw_autocast_keys};
    if (modes.grad)
        tw_shim.grad_mode_set_enabled(false);
    *excluded &= ~tw_autocast_keys;
    return modes;
}

static void restore_modes(Modes modes)
{
    *excluded_keys() |= modes.autocast;
    if (modes.grad)
        tw_shim.grad_mode_set_enabled(true);
}

PyObject *tw_run_program(Program *p, PyObject *const *inputs, PyObject *derived)
{
    Frame *f = tw_lease(p, derived);
    if (!f) {
        tw_fail_region(0);
        return NULL;
    }
    memcpy(f->object, inputs, sizeof(PyObject *) * p->inputs);
    for (Py_ssize_t i = 0; i < p->read_inputs.count; i++) {
        int64_t slot = p->read_inputs.at[i];
        f->address[slot] = tw_data(tw_handle(inputs[slot]));
    }
    Modes modes = {0};
    if (p->calls_torch)
        modes = leave_modes();
    int wrote = 0, failed = 0;
    for (Py_ssize_t i = 0; i < p->count && !failed; i++)
        failed = run_step(&p->steps[i], f, modes.grad, &wrote) < 0;
    if (p->calls_torch)
        restore_modes(modes);
    PyObject *result = NULL;
    if (UNLIKELY(failed))
        tw_fail_region(wrote);
    else
        result = collect(p, f);
    tw_give_back(p, f);
    return result;
}
