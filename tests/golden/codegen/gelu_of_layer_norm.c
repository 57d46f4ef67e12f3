/* ln_sum, ln_sq, y */
typedef struct { void **pointers; const long long *sizes; int bad; } tw_k0_y_call;
static void tw_k0_y_rows(long lo, long hi, void *context) {
    tw_k0_y_call *call = context;
    const float *p0 = call->pointers[0];
    const float *p1 = call->pointers[1];
    const float *p2 = call->pointers[2];
    float *p3 = call->pointers[3];
    for (long row = lo; row < hi; row++) {
        const long i0 = row;
        float v0_acc = 0;
        {
            const long quarter = 1024 / 4;
            float v0_acc_0 = 0, v0_acc_1 = 0, v0_acc_2 = 0, v0_acc_3 = 0;
#pragma omp simd reduction(+:v0_acc_0, v0_acc_1, v0_acc_2, v0_acc_3)
            for (long r0 = 0; r0 < quarter; r0++) {
                {
                    const float t0 = p0[1024*i0 + (r0)];
                    v0_acc_0 += t0;
                }
                {
                    const float t1 = p0[1024*i0 + (1*quarter + r0)];
                    v0_acc_1 += t1;
                }
                {
                    const float t2 = p0[1024*i0 + (2*quarter + r0)];
                    v0_acc_2 += t2;
                }
                {
                    const float t3 = p0[1024*i0 + (3*quarter + r0)];
                    v0_acc_3 += t3;
                }
            }
            v0_acc += v0_acc_0;
            v0_acc += v0_acc_1;
            v0_acc += v0_acc_2;
            v0_acc += v0_acc_3;
            for (long r0 = 4*quarter; r0 < 1024; r0++) {
                const float t4 = p0[1024*i0 + r0];
                v0_acc += t4;
            }
        }
        const float v0 = (float)v0_acc;
        float v1_acc = 0;
        const float t6 = v0 / 1024.0f;
        {
            const long quarter = 1024 / 4;
            float v1_acc_0 = 0, v1_acc_1 = 0, v1_acc_2 = 0, v1_acc_3 = 0;
#pragma omp simd reduction(+:v1_acc_0, v1_acc_1, v1_acc_2, v1_acc_3)
            for (long r0 = 0; r0 < quarter; r0++) {
                {
                    const float t5 = p0[1024*i0 + (r0)];
                    const float t7 = t5 - t6;
                    const float t8 = t7 * t7;
                    v1_acc_0 += t8;
                }
                {
                    const float t9 = p0[1024*i0 + (1*quarter + r0)];
                    const float t10 = t9 - t6;
                    const float t11 = t10 * t10;
                    v1_acc_1 += t11;
                }
                {
                    const float t12 = p0[1024*i0 + (2*quarter + r0)];
                    const float t13 = t12 - t6;
                    const float t14 = t13 * t13;
                    v1_acc_2 += t14;
                }
                {
                    const float t15 = p0[1024*i0 + (3*quarter + r0)];
                    const float t16 = t15 - t6;
                    const float t17 = t16 * t16;
                    v1_acc_3 += t17;
                }
            }
            v1_acc += v1_acc_0;
            v1_acc += v1_acc_1;
            v1_acc += v1_acc_2;
            v1_acc += v1_acc_3;
            for (long r0 = 4*quarter; r0 < 1024; r0++) {
                const float t18 = p0[1024*i0 + r0];
                const float t19 = t18 - t6;
                const float t20 = t19 * t19;
                v1_acc += t20;
            }
        }
        const float v1 = (float)v1_acc;
        const float t23 = v1 / 1024.0f;
        const float t24 = t23 + 9.999999747378752e-06f;
        const float t25 = 1.0f / __builtin_sqrtf(t24);
#pragma omp simd
        for (long r0 = 0; r0 < 1024; r0++) {
            const float t21 = p0[1024*i0 + r0];
            const float t22 = t21 - t6;
            const float t26 = t22 * t25;
            const float t27 = p2[r0];
            const float t28 = t26 * t27;
            const float t29 = p1[r0];
            const float t30 = t28 + t29;
            const float t31 = 0.5f * t30;
            const float t32 = t30 * 0.7071067690849304f;
            const float t33 = tw_erf(t32);
            const float t34 = 1.0f + t33;
            const float t35 = t31 * t34;
            p3[1024*i0 + r0] = t35;
        }
    }
}
int tw_k0_y(void **pointers, const long long *sizes) {
    tw_k0_y_call call = {pointers, sizes, 0};
    tw_k0_y_rows(0, 6, &call);
    return call.bad;
}
