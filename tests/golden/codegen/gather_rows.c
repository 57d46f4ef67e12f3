/* o */
typedef struct { void **pointers; const long long *sizes; int bad; } tw_k0_o_call;
static void tw_k0_o_rows(long lo, long hi, void *context) {
    tw_k0_o_call *call = context;
    const float *p0 = call->pointers[0];
    const float *p1 = call->pointers[1];
    const long long *p2 = call->pointers[2];
    float *p3 = call->pointers[3];
    int bad = 0;
    for (long row = lo; row < hi; row++) {
        const long i0 = row;
        const long long t0 = p2[i0];
        const long long t1 = t0 < 0 ? t0 + (50) : t0;
        bad |= ((unsigned long long)t1 >= (unsigned long long)(50));
        const long long t2 = (unsigned long long)t1 >= (unsigned long long)(50) ? 0 : t1;
        const long long t3 = (long long)((unsigned long long)t2 * (unsigned long long)64LL);
#pragma omp simd
        for (long i1 = 0; i1 < 64; i1++) {
            const float t4 = p1[i1 + t3];
            const float t5 = p0[64*i0 + i1];
            const float t6 = t4 + t5;
            p3[64*i0 + i1] = t6;
        }
    }
    if (bad) call->bad = 1;
}
int tw_k0_o(void **pointers, const long long *sizes) {
    tw_k0_o_call call = {pointers, sizes, 0};
    tw_k0_o_rows(0, 9, &call);
    return call.bad;
}
