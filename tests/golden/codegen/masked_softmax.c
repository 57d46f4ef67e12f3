/* s, y_max, y_exp, y_sum, y */
typedef struct { void **pointers; const long long *sizes; int bad; } tw_k0_y_call;
static void tw_k0_y_rows(long lo, long hi, void *context) {
    tw_k0_y_call *call = context;
    const float *p0 = call->pointers[0];
    const unsigned char *p1 = call->pointers[1];
    float *p2 = call->pointers[2];
    float row0[50] __attribute__((aligned(64)));
    float row1[50] __attribute__((aligned(64)));
    for (long row = lo; row < hi; row++) {
        const long i1 = row % 7;
        const long i0 = row / 7;
        float v1_acc = -__builtin_inff();
        int v1_nan = 0;
#pragma omp simd reduction(max:v1_acc) reduction(|:v1_nan)
        for (long r0 = 0; r0 < 50; r0++) {
            const int t0 = p1[50*i1 + r0];
            const float t1 = p0[350*i0 + 50*i1 + r0];
            const float t2 = t1 * 0.125f;
            const float t3 = t0 ? t2 : -__builtin_inff();
            v1_acc = t3 > v1_acc ? t3 : v1_acc;
            v1_nan |= (t3 != t3);
            row0[r0] = t3;
        }
        const float v1 = v1_nan ? __builtin_nanf("") : v1_acc;
        float v3_acc = 0;
#pragma omp simd reduction(+:v3_acc)
        for (long r0 = 0; r0 < 50; r0++) {
            const float t4 = row0[r0];
            const float t5 = t4 - v1;
            const float t6 = tw_exp_neg(t5);
            v3_acc += t6;
            row1[r0] = t6;
        }
        const float v3 = (float)v3_acc;
#pragma omp simd
        for (long r0 = 0; r0 < 50; r0++) {
            const float t7 = row1[r0];
            const float t8 = t7 / v3;
            p2[350*i0 + 50*i1 + r0] = t8;
        }
    }
}
int tw_k0_y(void **pointers, const long long *sizes) {
    tw_k0_y_call call = {pointers, sizes, 0};
    tw_k0_y_rows(0, 14, &call);
    return call.bad;
}
