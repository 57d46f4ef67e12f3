/* The only file that knows the layout of an interpreter frame, for CPython 3.11 to 3.13.

   A frame is *fresh* before its first instruction: arguments stand by value in the first locals, cells are not made, no
   frame object exists. Only then may its code object be exchanged, for one of the same signature and free variables. */
#ifndef TW_FRAME_COMPAT_H
#define TW_FRAME_COMPAT_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#if PY_VERSION_HEX >= 0x030E0000
#error "frames of Python 3.14 are not known yet"
#endif
#if PY_VERSION_HEX >= 0x030C0000
#undef _PyGC_FINALIZED
#endif
#define Py_BUILD_CORE 1
#include <internal/pycore_frame.h>
#include <internal/pycore_code.h>
#if PY_VERSION_HEX >= 0x030C0000
#include <internal/pycore_interp.h>
#endif
#undef Py_BUILD_CORE

typedef _PyInterpreterFrame Frame;

#if PY_VERSION_HEX >= 0x030D0000
static inline PyCodeObject *frame_code(Frame *f) { return (PyCodeObject *)f->f_executable; }
#else
static inline PyCodeObject *frame_code(Frame *f) { return f->f_code; }
#endif

#if PY_VERSION_HEX >= 0x030C0000
static inline PyFunctionObject *frame_function(Frame *f) { return (PyFunctionObject *)f->f_funcobj; }
static inline Py_ssize_t frame_size(PyCodeObject *code) { return code->co_framesize; } /* in words of the data stack */
#define get_extra_slot PyUnstable_Code_GetExtra
#define set_extra_slot PyUnstable_Code_SetExtra
#define request_extra_index PyUnstable_Eval_RequestCodeExtraIndex
#else
static inline PyFunctionObject *frame_function(Frame *f) { return f->f_func; }
static inline Py_ssize_t frame_size(PyCodeObject *code) { return code->co_nlocalsplus + code->co_stacksize + FRAME_SPECIALS_SIZE; }
#define get_extra_slot _PyCode_GetExtra
#define set_extra_slot _PyCode_SetExtra
#define request_extra_index _PyEval_RequestCodeExtraIndex
#endif

static inline int frame_is_fresh(Frame *f, PyCodeObject *code)
{
#if PY_VERSION_HEX >= 0x030D0000
    int at_start = f->instr_ptr == _PyCode_CODE(code);
#else
    int at_start = f->prev_instr == _PyCode_CODE(code) - 1;
#endif
    return f->owner == FRAME_OWNED_BY_THREAD && at_start && f->f_locals == NULL && f->frame_obj == NULL;
}

/* Makes a fresh frame run `code`, keeping its first `keep` locals. The frame must have room for it. */
static inline void frame_swap_code(Frame *f, PyCodeObject *code, int keep)
{
    PyCodeObject *old = frame_code(f);
    for (int i = keep; i < code->co_nlocalsplus; i++)
        f->localsplus[i] = NULL;
#if PY_VERSION_HEX >= 0x030D0000
    f->f_executable = Py_NewRef(code);
    f->instr_ptr = _PyCode_CODE(code);
#else
    f->f_code = (PyCodeObject *)Py_NewRef(code);
    f->prev_instr = _PyCode_CODE(code) - 1;
#endif
    f->stacktop = code->co_nlocalsplus;
    Py_DECREF(old);
}

/* Ends a fresh frame with a ready result (stolen; NULL: the exception that is set). `return_code` is "RESUME; RETURN_VALUE". */
static inline PyObject *frame_finish(PyThreadState *ts, Frame *f, PyObject *result, PyCodeObject *return_code)
{
#if PY_VERSION_HEX >= 0x030C0000 /* the evaluator clears and pops its frame, so it must run once more */
    if (result == NULL)
        return _PyEval_EvalFrameDefault(ts, f, 1);
    int count = frame_code(f)->co_nlocalsplus;
    ts->datastack_top = (PyObject **)f + frame_size(return_code);
    for (int i = 0; i < count; i++)
        Py_CLEAR(f->localsplus[i]);
    frame_swap_code(f, return_code, 0);
    f->localsplus[0] = result;
    f->stacktop = 1;
    return _PyEval_EvalFrameDefault(ts, f, 0);
#else
    (void)ts, (void)f, (void)return_code; /* the caller clears and pops it */
    return result;
#endif
}

/* A debug build asserts that a frame ends at the top of the data stack when it is popped: so the top moves down as well. */
static inline int frame_make_room(PyThreadState *ts, Frame *f, PyCodeObject *old, PyCodeObject *new)
{
    Py_ssize_t more = frame_size(new) - frame_size(old);
    if ((PyObject **)f + frame_size(old) != ts->datastack_top || more >= ts->datastack_limit - ts->datastack_top)
        return 0;
    ts->datastack_top += more;
    return 1;
}

static inline int frame_c_recursion_is_low(PyThreadState *ts)
{
#if PY_VERSION_HEX >= 0x030C0000
    return ts->c_recursion_remaining < 200;
#else
    (void)ts;
    return 0;
#endif
}

/* A debugger or a coverage tool wants to see each line: such frames run as they are. */
static inline int is_traced(PyThreadState *ts)
{
#if PY_VERSION_HEX >= 0x030C0000
    const uint8_t *tools = ts->interp->monitors.tools;
    return ((tools[PY_MONITORING_EVENT_PY_START] & ~(1 << PY_MONITORING_SYS_PROFILE_ID)) | tools[PY_MONITORING_EVENT_LINE]) != 0;
#else
    return ts->c_tracefunc != NULL;
#endif
}
#endif
