/* h, q, y */
typedef struct { void **pointers; const long long *sizes; int bad; } tw_k0_y_call;
static void tw_k0_y_rows(long lo, long hi, void *context) {
    tw_k0_y_call *call = context;
    const unsigned short *p0 = call->pointers[0];
    const unsigned short *p1 = call->pointers[1];
    unsigned short *p2 = call->pointers[2];
    const unsigned short *p3 = call->pointers[3];
    unsigned short *p4 = call->pointers[4];
    for (long row = lo; row < hi; row++) {
        const long i0 = row;
        float v1_acc = 0;
#pragma omp simd reduction(+:v1_acc)
        for (long r0 = 0; r0 < 300; r0++) {
            const float t0 = tw_b2f(p1[300*i0 + r0]);
            const float t1 = tw_b2f(p0[300*i0 + r0]);
            const float t2 = t0 + t1;
            const float t3 = tw_round_b_short(t2);
            const float t4 = t3 * t3;
            v1_acc += t4;
            p2[300*i0 + r0] = tw_f2b_short(t2);
        }
        const float v1 = (float)v1_acc;
        const float t6 = v1 / 300.0f;
        const float t7 = t6 + 9.999999974752427e-07f;
        const float t8 = 1.0f / __builtin_sqrtf(t7);
#pragma omp simd
        for (long r0 = 0; r0 < 300; r0++) {
            const float t5 = tw_b2f(p2[300*i0 + r0]);
            const float t9 = t5 * t8;
            const float t10 = tw_round_b_short(t9);
            const float t11 = tw_b2f(p3[r0]);
            const float t12 = t10 * t11;
            p4[300*i0 + r0] = tw_f2b_short(t12);
        }
    }
}
int tw_k0_y(void **pointers, const long long *sizes) {
    tw_k0_y_call call = {pointers, sizes, 0};
    tw_k0_y_rows(0, 5, &call);
    return call.bad;
}
