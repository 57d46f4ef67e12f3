/* o */
typedef struct { void **pointers; const long long *sizes; int bad; } tw_k0_o_call;
static void tw_k0_o_rows(long lo, long hi, void *context) {
    tw_k0_o_call *call = context;
    const float *p0 = call->pointers[0];
    const float *p1 = call->pointers[1];
    const float *p2 = call->pointers[2];
    float *p3 = call->pointers[3];
    for (long row = lo; row < hi; row++) {
        const long strips = (40 + 63) / 64, strip = row % strips * 64, other = row / strips;
        const long strip_end = tw_minl(strip + 64, 40);
        const long c0 = tw_minl(tw_maxl(0, strip), strip_end);
        const long c1 = tw_minl(tw_maxl(24, strip), strip_end);
        if (strip < c0) {
            for (long u0 = strip; u0 < c0; u0 += 16) {
            for (long v0 = 0; v0 < 40; v0 += 16) {
                if (u0 + 16 <= c0 && v0 + 16 <= 40) {
                    float turned0[16][16] __attribute__((aligned(64)));
                    tw_turn16(p1 + u0 + 16*v0 - 24, 16, turned0);
                    for (long i0 = u0; i0 < u0 + 16; i0++) {
#pragma omp simd
                        for (long i1 = v0; i1 < v0 + 16; i1++) {
                            const float t2 = turned0[i0 - u0][i1 - v0];
                            const float t3 = p0[40*i0 + i1];
                            const float t4 = t2 + t3;
                            p3[40*i0 + i1] = t4;
                        }
                    }
                } else {
                    for (long i0 = u0; i0 < tw_minl(u0 + 16, c0); i0++) {
#pragma omp simd
                        for (long i1 = v0; i1 < tw_minl(v0 + 16, 40); i1++) {
                            const float t5 = p1[i0 + 16*i1 - 24];
                            const float t6 = p0[40*i0 + i1];
                            const float t7 = t5 + t6;
                            p3[40*i0 + i1] = t7;
                        }
                    }
                }
            }
            }
        }
        if (c0 < c1) {
            for (long u0 = c0; u0 < c1; u0 += 16) {
            for (long v0 = 0; v0 < 40; v0 += 16) {
                if (u0 + 16 <= c1 && v0 + 16 <= 40) {
                    float turned0[16][16] __attribute__((aligned(64)));
                    tw_turn16(p2 + u0 + 24*v0, 24, turned0);
                    for (long i0 = u0; i0 < u0 + 16; i0++) {
#pragma omp simd
                        for (long i1 = v0; i1 < v0 + 16; i1++) {
                            const float t8 = turned0[i0 - u0][i1 - v0];
                            const float t9 = p0[40*i0 + i1];
                            const float t10 = t8 + t9;
                            p3[40*i0 + i1] = t10;
                        }
                    }
                } else {
                    for (long i0 = u0; i0 < tw_minl(u0 + 16, c1); i0++) {
#pragma omp simd
                        for (long i1 = v0; i1 < tw_minl(v0 + 16, 40); i1++) {
                            const float t11 = p2[i0 + 24*i1];
                            const float t12 = p0[40*i0 + i1];
                            const float t13 = t11 + t12;
                            p3[40*i0 + i1] = t13;
                        }
                    }
                }
            }
            }
        }
        if (c1 < strip_end) {
            for (long u0 = c1; u0 < strip_end; u0 += 16) {
            for (long v0 = 0; v0 < 40; v0 += 16) {
                if (u0 + 16 <= strip_end && v0 + 16 <= 40) {
                    float turned0[16][16] __attribute__((aligned(64)));
                    tw_turn16(p1 + u0 + 16*v0 - 24, 16, turned0);
                    for (long i0 = u0; i0 < u0 + 16; i0++) {
#pragma omp simd
                        for (long i1 = v0; i1 < v0 + 16; i1++) {
                            const float t14 = turned0[i0 - u0][i1 - v0];
                            const float t15 = p0[40*i0 + i1];
                            const float t16 = t14 + t15;
                            p3[40*i0 + i1] = t16;
                        }
                    }
                } else {
                    for (long i0 = u0; i0 < tw_minl(u0 + 16, strip_end); i0++) {
#pragma omp simd
                        for (long i1 = v0; i1 < tw_minl(v0 + 16, 40); i1++) {
                            const float t17 = p1[i0 + 16*i1 - 24];
                            const float t18 = p0[40*i0 + i1];
                            const float t19 = t17 + t18;
                            p3[40*i0 + i1] = t19;
                        }
                    }
                }
            }
            }
        }
    }
}
int tw_k0_o(void **pointers, const long long *sizes) {
    tw_k0_o_call call = {pointers, sizes, 0};
    tw_k0_o_rows(0, 1, &call);
    return call.bad;
}
