/* y_max, y_exp, y_sum, y */
typedef struct { void **pointers; const long long *sizes; int bad; } tw_k0_y_call;
static void tw_k0_y_rows(long lo, long hi, void *context) {
    tw_k0_y_call *call = context;
    const float *p0 = call->pointers[0];
    const unsigned char *p1 = call->pointers[1];
    float *p2 = call->pointers[2];
    float row0[50] __attribute__((aligned(64)));
    for (long row = lo; row < hi; row++) {
        const long i1 = row % 7;
        const long i0 = row / 7;
        float v0_acc = -__builtin_inff();
        int v0_nan = 0;
#pragma omp simd reduction(max:v0_acc) reduction(|:v0_nan)
        for (long r0 = 0; r0 < 50; r0++) {
            const int t0 = p1[50*i1 + r0];
            const float t1 = p0[350*i0 + 50*i1 + r0];
            const float t2 = t1 * 0.125f;
            const float t3 = t0 ? t2 : -__builtin_inff();
            v0_acc = t3 > v0_acc ? t3 : v0_acc;
            v0_nan |= (t3 != t3);
        }
        const float v0 = v0_nan ? __builtin_nanf("") : v0_acc;
        float v2_acc = 0;
#pragma omp simd reduction(+:v2_acc)
        for (long r0 = 0; r0 < 50; r0++) {
            const int t4 = p1[50*i1 + r0];
            const float t5 = p0[350*i0 + 50*i1 + r0];
            const float t6 = t5 * 0.125f;
            const float t7 = t4 ? t6 : -__builtin_inff();
            const float t8 = t7 - v0;
            const float t9 = tw_exp_neg(t8);
            v2_acc += t9;
            row0[r0] = t9;
        }
        const float v2 = (float)v2_acc;
#pragma omp simd
        for (long r0 = 0; r0 < 50; r0++) {
            const float t10 = row0[r0];
            const float t11 = t10 / v2;
            p2[350*i0 + 50*i1 + r0] = t11;
        }
    }
}
int tw_k0_y(void **pointers, const long long *sizes) {
    tw_k0_y_call call = {pointers, sizes, 0};
    tw_k0_y_rows(0, 14, &call);
    return call.bad;
}
