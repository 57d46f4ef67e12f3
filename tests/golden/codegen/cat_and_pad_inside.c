/* p */
typedef struct { void **pointers; const long long *sizes; int bad; } tw_k0_p_call;
static void tw_k0_p_rows(long lo, long hi, void *context) {
    tw_k0_p_call *call = context;
    const float *p0 = call->pointers[0];
    const float *p1 = call->pointers[1];
    float *p2 = call->pointers[2];
    for (long row = lo; row < hi; row++) {
        const long i0 = row;
        if ((i0 - 1 >= 0) & (i0 - 1 < 6)) {
            {
#pragma omp simd
                for (long i1 = 0; i1 < 3; i1++) {
                    p2[47*i0 + i1] = (-1.0f);
                }
            }
            {
                {
#pragma omp simd
                    for (long i1 = 3; i1 < 27; i1++) {
                        const float t0 = p1[24*i0 + i1 - 27];
                        const float t1 = t0 * 2.0f;
                        p2[47*i0 + i1] = t1;
                    }
                }
                {
#pragma omp simd
                    for (long i1 = 27; i1 < 44; i1++) {
                        const float t2 = p0[17*i0 + i1 - 44];
                        const float t3 = t2 * 2.0f;
                        p2[47*i0 + i1] = t3;
                    }
                }
            }
            {
#pragma omp simd
                for (long i1 = 44; i1 < 47; i1++) {
                    p2[47*i0 + i1] = (-1.0f);
                }
            }
        }
        else {
#pragma omp simd
            for (long i1 = 0; i1 < 47; i1++) {
                p2[47*i0 + i1] = (-1.0f);
            }
        }
    }
}
int tw_k0_p(void **pointers, const long long *sizes) {
    tw_k0_p_call call = {pointers, sizes, 0};
    tw_k0_p_rows(0, 8, &call);
    return call.bad;
}
