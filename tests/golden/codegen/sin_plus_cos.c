/* y */
typedef struct { void **pointers; const long long *sizes; int bad; } tw_k0_y_call;
static void tw_k0_y_rows(long lo, long hi, void *context) {
    tw_k0_y_call *call = context;
    const float *p0 = call->pointers[0];
    float *p1 = call->pointers[1];
    const long first = lo * 256, last = tw_minl(hi * 256, 1000);
    for (long b4 = first; b4 < last; b4 += 1024) {
        const long b4_end = tw_minl(b4 + 1024, last);
        int big = 0;
#pragma omp simd reduction(|:big)
        for (long i0 = b4; i0 < b4_end; i0++) {
            const float t5 = p0[i0];
            big |= TW_BIG(t5);
            const float t6 = tw_sin(t5);
            const float t7 = tw_cos(t5);
            const float t8 = t6 + t7;
            p1[i0] = t8;
        }
        if (big) {
            for (long i0 = b4; i0 < b4_end; i0++) {
                const float t9 = p0[i0];
                const float t10 = tw_sin_exact(t9);
                const float t11 = tw_cos_exact(t9);
                const float t12 = t10 + t11;
                p1[i0] = t12;
            }
        }
    }
}
int tw_k0_y(void **pointers, const long long *sizes) {
    tw_k0_y_call call = {pointers, sizes, 0};
    tw_k0_y_rows(0, 4, &call);
    return call.bad;
}
