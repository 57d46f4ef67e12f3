/* The torch modes that every entry is keyed on, read from thread-local variables in about ten nanoseconds. */
#ifndef TW_STATE_H
#define TW_STATE_H
#include "core.h"
#include <stdint.h>
#include <string.h>

typedef struct {
    uint64_t included, excluded; /* raw thread-local dispatch keys: inference, autocast, dispatch modes, functorch, tracing */
    int64_t function_modes;
    uint16_t default_dtype;
    int8_t grad, deterministic, cpu_autocast, cuda_autocast;
    int16_t spare;
} TorchState;

int tw_state_init(PyObject *module);
int tw_read_state(TorchState *state); /* 0, or -1 with an exception */
#endif
