/* o */
typedef struct { void **pointers; const long long *sizes; int bad; } tw_k0_o_call;
static void tw_k0_o_rows(long lo, long hi, void *context) {
    tw_k0_o_call *call = context;
    const float *p0 = call->pointers[0];
    const float *p1 = call->pointers[1];
    const float *p2 = call->pointers[2];
    float *p3 = call->pointers[3];
    for (long row = lo; row < hi; row++) {
        const long i0 = row;
        if ((i0 < 24)) {
#pragma omp simd
            for (long i1 = 0; i1 < 40; i1++) {
                const float t0 = p2[i0 + 24*i1];
                const float t1 = p0[40*i0 + i1];
                const float t2 = t0 + t1;
                p3[40*i0 + i1] = t2;
            }
        }
        else {
#pragma omp simd
            for (long i1 = 0; i1 < 40; i1++) {
                const float t3 = p1[i0 + 16*i1 - 24];
                const float t4 = p0[40*i0 + i1];
                const float t5 = t3 + t4;
                p3[40*i0 + i1] = t5;
            }
        }
    }
}
int tw_k0_o(void **pointers, const long long *sizes) {
    tw_k0_o_call call = {pointers, sizes, 0};
    tw_k0_o_rows(0, 40, &call);
    return call.bad;
}
