/* What the files of the native core share. */
#ifndef TW_CORE_H
#define TW_CORE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

extern PyObject *tw_region_failed; /* the exception RegionFailed: nothing was written, the caller runs eager */
#endif
