"""The C functions that kernels call, as text without includes: bits, conversions, integer arithmetic, vector math, C library.

Chunks are separated by empty lines; `needed` picks those that a text uses. float32 functions are branch-free, so that loops over
them vectorise, and within 1.5 ulp; NaN, infinities and signed zeros come out as in the C library. Polynomials with float
coefficients follow the usual minimax fits of N. Juffa (njuffa, public domain answers); those in double need no fit: series of a
reduced argument, rounded once at the end. Functions named `_exact` and those over float64 call the C library under private
names, since compilers merge or expand the public ones.
"""

from __future__ import annotations

import re
from functools import cache

from thruway.codegen.moments_text import TEXT as MOMENTS

TEXT = r"""
#define TWI static inline __attribute__((always_inline))

TWI unsigned tw_bits_fu(float x) { unsigned u; __builtin_memcpy(&u, &x, 4); return u; }

TWI float tw_bits_uf(unsigned u) { float x; __builtin_memcpy(&x, &u, 4); return x; }

TWI int tw_bits_fi(float x) { int u; __builtin_memcpy(&u, &x, 4); return u; }

TWI float tw_bits_if(int u) { float x; __builtin_memcpy(&x, &u, 4); return x; }

TWI long long tw_bits_dl(double x) { long long u; __builtin_memcpy(&u, &x, 8); return u; }

TWI double tw_bits_ld(long long u) { double x; __builtin_memcpy(&x, &u, 8); return x; }

TWI unsigned long long tw_bits_dq(double x) { unsigned long long u; __builtin_memcpy(&u, &x, 8); return u; }

TWI double tw_bits_qd(unsigned long long u) { double x; __builtin_memcpy(&x, &u, 8); return x; }

TWI int tw_bits_ui(unsigned u) { return (int)u; }

TWI unsigned tw_bits_iu(int u) { return (unsigned)u; }

TWI long long tw_bits_ql(unsigned long long u) { return (long long)u; }

TWI unsigned long long tw_bits_lq(long long u) { return (unsigned long long)u; }

TWI int tw_signbit(float x) { return tw_bits_fi(x) < 0; }

TWI int tw_signbit_d(double x) { return tw_bits_dl(x) < 0; }

__attribute__((weak)) int tw_zero_held; /* a 0 that gcc does not know */
TWI int tw_zero(void) { return tw_zero_held; }

TWI long tw_minl(long a, long b) { return a < b ? a : b; }

TWI long tw_maxl(long a, long b) { return a > b ? a : b; }

TWI long tw_floordiv(long a, long b) { long q = a / b; return q - (a % b != 0 && (a < 0) != (b < 0)); }

TWI long tw_floormod(long a, long b) { long r = a % b; return r + (r != 0 && (r < 0) != (b < 0) ? b : 0); }

#define tw_keep(condition, then, other) ((condition) ? (then) : (other))

TWI float tw_b2f(unsigned short b) { return tw_bits_uf((unsigned)b << 16); }

/* masks, not branches: compilers follow a test for NaN into the functions before and behind, and then cannot vectorise the loop */
TWI unsigned tw_nan_mask(float f) { return -(unsigned)(f != f); }

TWI unsigned short tw_f2b(float f) {
    unsigned u = tw_bits_fu(f), r = (u + 0x7fff + ((u >> 16) & 1)) >> 16, nan = tw_nan_mask(f);
    return (unsigned short)(r | (nan & 0x7fc0u));
}

TWI float tw_round_b(float f) {
    unsigned u = tw_bits_fu(f), r = (u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000u, nan = tw_nan_mask(f);
    return tw_bits_uf(r | (nan & 0x7fc00000u));
}

/* the same where every NaN has an empty low half */
TWI unsigned short tw_f2b_short(float f) { unsigned u = tw_bits_fu(f); return (unsigned short)((u + 0x7fff + ((u >> 16) & 1)) >> 16); }

TWI float tw_round_b_short(float f) { unsigned u = tw_bits_fu(f); return tw_bits_uf((u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000u); }

/* of a value that bfloat16 holds */
TWI unsigned short tw_f2b_held(float f) { return (unsigned short)(tw_bits_fu(f) >> 16); }

TWI float tw_h2f(unsigned short h) {
    unsigned sign = (unsigned)(h & 0x8000) << 16, rest = (unsigned)(h & 0x7fff) << 13;
    float normal = tw_bits_uf(rest + (112u << 23)), small = tw_bits_uf(rest + (113u << 23)) - 6.103515625e-05f;
    unsigned u = rest >= (31u << 23) ? rest | 0x7f800000u : rest < (1u << 23) ? tw_bits_fu(small) : tw_bits_fu(normal);
    return tw_bits_uf(sign | u);
}

TWI unsigned short tw_f2h(float f) {
    unsigned u = tw_bits_fu(f), sign = (u >> 16) & 0x8000, a = u & 0x7fffffffu;
    unsigned normal = (a - (112u << 23) + 0xfff + ((a >> 13) & 1)) >> 13;
    unsigned small = tw_bits_fu(tw_bits_uf(a) + 0.5f) - 0x3f000000u;
    unsigned r = a < 0x38800000u ? small : normal;
    r = a >= 0x47800000u || r > 0x7c00u ? 0x7c00u : r;
    r = a > 0x7f800000u ? 0x7e00u : r;
    return (unsigned short)(sign | r);
}

TWI float tw_round_h(float f) { return tw_h2f(tw_f2h(f)); }

TWI long long tw_truncdiv_i64(long long a, long long b) {
    return b == 0 ? 0 : b == -1 ? (long long)(-(unsigned long long)a) : a / b;
}

TWI unsigned long long tw_truncdiv_u64(unsigned long long a, unsigned long long b) { return b == 0 ? 0 : a / b; }

TWI long long tw_fmod_i64(long long a, long long b) { return b == 0 || b == -1 ? 0 : a % b; }

TWI unsigned long long tw_fmod_u64(unsigned long long a, unsigned long long b) { return b == 0 ? 0 : a % b; }

TWI long long tw_floordiv_i64(long long a, long long b) {
    long long q = tw_truncdiv_i64(a, b), r = tw_fmod_i64(a, b);
    return q - (r != 0 && (r < 0) != (b < 0));
}

TWI unsigned long long tw_floordiv_u64(unsigned long long a, unsigned long long b) { return b == 0 ? 0 : a / b; }

TWI long long tw_mod_i64(long long a, long long b) {
    long long r = tw_fmod_i64(a, b);
    return r + (r != 0 && (r < 0) != (b < 0) ? b : 0);
}

TWI unsigned long long tw_mod_u64(unsigned long long a, unsigned long long b) { return b == 0 ? 0 : a % b; }

TWI long long tw_shl_i64(long long a, long long b, int bits) { return b < 0 || b >= bits ? 0 : (long long)((unsigned long long)a << b); }

TWI unsigned long long tw_shl_u64(unsigned long long a, unsigned long long b, int bits) { return b >= (unsigned)bits ? 0 : a << b; }

TWI long long tw_shr_i64(long long a, long long b, int bits) { return b < 0 || b >= bits ? (a < 0 ? -1 : 0) : a >> b; }

TWI unsigned long long tw_shr_u64(unsigned long long a, unsigned long long b, int bits) { return b >= (unsigned)bits ? 0 : a >> b; }

TWI long long tw_pow_i64(long long a, long long b) {
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
    unsigned long long r = 1, x = (unsigned long long)a;
    for (; b; b >>= 1, x *= x) if (b & 1) r *= x;
    return (long long)r;
}

TWI float tw_max(float a, float b) { return a > b || a != a ? a : b; }

TWI float tw_min(float a, float b) { return a < b || a != a ? a : b; }

TWI double tw_max_d(double a, double b) { return a > b || a != a ? a : b; }

TWI double tw_min_d(double a, double b) { return a < b || a != a ? a : b; }

TWI float tw_fmax(float a, float b) { return a > b || b != b ? a : b; }

TWI float tw_fmin(float a, float b) { return a < b || b != b ? a : b; }

TWI double tw_fmax_d(double a, double b) { return a > b || b != b ? a : b; }

TWI double tw_fmin_d(double a, double b) { return a < b || b != b ? a : b; }

TWI float tw_sign(float a) { return (float)((a > 0.f) - (a < 0.f)); }

TWI double tw_sign_d(double a) { return (double)((a > 0.0) - (a < 0.0)); }

TWI float tw_exp(float x) {
    float t = __builtin_fmaf(x, 1.44269504f, 12582912.f), k = t - 12582912.f;
    float r = __builtin_fmaf(k, -0.693359375f, x);
    r = __builtin_fmaf(k, 2.12194440e-4f, r);
    float p = 1.98569698e-4f;
    p = __builtin_fmaf(p, r, 1.39304629e-3f); p = __builtin_fmaf(p, r, 8.33336823e-3f); p = __builtin_fmaf(p, r, 4.16664593e-2f);
    p = __builtin_fmaf(p, r, 1.66666657e-1f); p = __builtin_fmaf(p, r, 0.5f); p = __builtin_fmaf(p, r * r, r) + 1.0f;
    int e = (int)((unsigned)tw_bits_fi(p) + ((unsigned)tw_bits_fi(t) << 23));
    float up = tw_bits_if(e), down = tw_bits_if((int)((unsigned)e + (64u << 23))) * 5.421010862e-20f;
    float y = k < 0.f ? down : up;
    y = x > 88.72283f ? __builtin_inff() : y;
    y = x < -104.f ? 0.f : y;
    return x != x ? x : y;
}

/* exp(x) for x <= 0, smallest results flushed to 0 below -87.3: the numerators of a softmax */
TWI float tw_exp_neg(float x) {
    float c = x < -87.3f ? -87.3f : x;
    float t = __builtin_fmaf(c, 1.44269504f, 12582912.f), k = t - 12582912.f;
    float r = __builtin_fmaf(k, -0.693359375f, c);
    r = __builtin_fmaf(k, 2.12194440e-4f, r);
    float p = 1.98569698e-4f;
    p = __builtin_fmaf(p, r, 1.39304629e-3f); p = __builtin_fmaf(p, r, 8.33336823e-3f); p = __builtin_fmaf(p, r, 4.16664593e-2f);
    p = __builtin_fmaf(p, r, 1.66666657e-1f); p = __builtin_fmaf(p, r, 0.5f); p = __builtin_fmaf(p, r * r, r) + 1.0f;
    float y = tw_bits_if((int)((unsigned)tw_bits_fi(p) + ((unsigned)tw_bits_fi(t) << 23)));
    y = x < -87.3f ? 0.f : y;
    return x != x ? x : y;
}

/* 2^t in double to about 1e-12, |t| <= 1100: series of t's fraction */
TWI double tw_exp2_wide(double t) {
    double m = t + 6755399441055744.0, k = m - 6755399441055744.0, f = (t - k) * 0.69314718055994530942;
    double p = 2.755731922398589e-6;
    p = __builtin_fma(p, f, 2.48015873015873e-5); p = __builtin_fma(p, f, 1.984126984126984e-4); p = __builtin_fma(p, f, 1.388888888888889e-3);
    p = __builtin_fma(p, f, 8.333333333333333e-3); p = __builtin_fma(p, f, 4.1666666666666664e-2); p = __builtin_fma(p, f, 1.6666666666666666e-1);
    p = __builtin_fma(p, f, 0.5); p = __builtin_fma(p, f, 1.0); p = __builtin_fma(p, f, 1.0);
    return tw_bits_ld((long long)((unsigned long long)tw_bits_dl(p) + ((unsigned long long)tw_bits_dl(m) << 52)));
}

/* log2 of a positive finite double to about 1e-12: atanh series of (m - 1) / (m + 1) */
TWI double tw_log2_wide(double x) {
    long long i = tw_bits_dl(x), e = (i - 0x3fe6a09e667f3bcdLL) >> 52;
    double m = tw_bits_ld(i - (long long)((unsigned long long)e << 52)), s = (m - 1.0) / (m + 1.0), q = s * s;
    double p = 0.22195308321368667;
    p = __builtin_fma(p, q, 0.26230818925253877); p = __builtin_fma(p, q, 0.32059889797532516); p = __builtin_fma(p, q, 0.41219858311113238);
    p = __builtin_fma(p, q, 0.57707801635558535); p = __builtin_fma(p, q, 0.96179669392597560); p = __builtin_fma(p, q, 2.88539008177792681);
    double k = tw_bits_ld(e + 0x4338000000000000LL) - 6755399441055744.0;
    return __builtin_fma(p, s, k);
}

/* the same over every float as log2 has it: 0 gives -inf, below 0 NaN */
TWI double tw_log2_any(float x) {
    double y = tw_log2_wide(x > 0.f && x < __builtin_inff() ? (double)x : 1.0);
    y = x == __builtin_inff() ? __builtin_inf() : y;
    y = x == 0.f ? -__builtin_inf() : y;
    return x < 0.f || x != x ? __builtin_nan("") : y;
}

TWI float tw_exp2(float x) {
    double c = x < -160.f ? -160.0 : x > 130.f ? 130.0 : (double)x;
    float y = (float)tw_exp2_wide(x != x ? 0.0 : c);
    return x != x ? x : y;
}

TWI float tw_expm1(float x) {
    double c = x > 89.f ? 89.0 : x < -20.f ? -20.0 : (double)x;
    double near = 2.505210838544172e-8;
    near = __builtin_fma(near, c, 2.755731922398589e-7); near = __builtin_fma(near, c, 2.755731922398589e-6);
    near = __builtin_fma(near, c, 2.48015873015873e-5); near = __builtin_fma(near, c, 1.984126984126984e-4);
    near = __builtin_fma(near, c, 1.388888888888889e-3); near = __builtin_fma(near, c, 8.333333333333333e-3);
    near = __builtin_fma(near, c, 4.1666666666666664e-2);
    near = __builtin_fma(near, c, 1.6666666666666666e-1); near = __builtin_fma(near, c, 0.5); near = __builtin_fma(near, c * c, c);
    double far = tw_exp2_wide(c * 1.44269504088896340736) - 1.0;
    float y = (float)(__builtin_fabs(c) < 0.5 ? near : far);
    y = __builtin_copysignf(x > 88.8f ? __builtin_inff() : y, x);
    return x != x ? x : y;
}

TWI float tw_log(float x) {
    float s = x < 1.17549435e-38f ? x * 8388608.f : x, eb = x < 1.17549435e-38f ? -23.f : 0.f;
    int i = tw_bits_fi(s), e = (int)((unsigned)(i - 0x3f2aaaab) & 0xff800000u);
    float m = tw_bits_if(i - e) - 1.0f, k = __builtin_fmaf((float)e, 1.1920929e-7f, eb), q = m * m;
    float r = -0.130310059f, t = 0.140869141f;
    r = __builtin_fmaf(r, q, -0.121483512f); t = __builtin_fmaf(t, q, 0.139814854f); r = __builtin_fmaf(r, q, -0.166846126f);
    t = __builtin_fmaf(t, q, 0.200120345f); r = __builtin_fmaf(r, q, -0.249996200f);
    r = __builtin_fmaf(t, m, r); r = __builtin_fmaf(r, m, 0.333331972f); r = __builtin_fmaf(r, m, -0.5f); r = __builtin_fmaf(r, q, m);
    r = __builtin_fmaf(k, 0.693147182f, r);
    r = x < __builtin_inff() && x > 0.f ? r : x + x;
    r = x < 0.f ? __builtin_nanf("") : r;
    return x == 0.f ? -__builtin_inff() : r;
}

TWI float tw_log2(float x) { return (float)tw_log2_any(x); }

TWI float tw_log10(float x) { return (float)(tw_log2_any(x) * 0.30102999566398119521); }

TWI float tw_log1p(float x) {
    double c = x > -1.f && x < __builtin_inff() ? (double)x : 0.0, s = c / (c + 2.0), q = s * s;
    double near = 0.1818181818181818;
    near = __builtin_fma(near, q, 0.2222222222222222); near = __builtin_fma(near, q, 0.2857142857142857); near = __builtin_fma(near, q, 0.4);
    near = __builtin_fma(near, q, 0.6666666666666666); near = __builtin_fma(near, q, 2.0); near = near * s;
    double far = tw_log2_wide(c + 1.0) * 0.69314718055994530942;
    float y = (float)(__builtin_fabs(c) < 0.25 ? near : far);
    y = x == -1.f ? -__builtin_inff() : y;
    y = x < -1.f ? __builtin_nanf("") : y;
    y = x == __builtin_inff() ? x : y;
    return x != x ? x : y;
}

TWI float tw_sigmoid(float x) { return 1.0f / (1.0f + tw_exp(-x)); }

TWI float tw_tanh(float a) {
    float t = __builtin_fabsf(a), s = a * a;
    float far = 1.0f - 2.0f / (tw_exp(t > 10.f ? 20.f : 2.f * t) + 1.0f);
    float near = -4.55461151e-4f;
    near = __builtin_fmaf(near, s, 2.58267135e-3f); near = __builtin_fmaf(near, s, -8.26454815e-3f); near = __builtin_fmaf(near, s, 2.16635447e-2f);
    near = __builtin_fmaf(near, s, -5.39293028e-2f); near = __builtin_fmaf(near, s, 1.33329779e-1f); near = __builtin_fmaf(near, s, -3.33333224e-1f);
    near = near * s;
    near = __builtin_fmaf(near, a, a);
    return __builtin_copysignf(t < 0.9f ? near : far, a);
}

TWI float tw_erf(float a) {
    float t = __builtin_fabsf(a), s = a * a;
    float r = __builtin_fmaf(-1.72853470e-5f, t, 3.83197126e-4f), u = __builtin_fmaf(-3.88396438e-3f, t, 2.42546219e-2f);
    r = __builtin_fmaf(r, s, u); r = __builtin_fmaf(r, t, -1.06777877e-1f); r = __builtin_fmaf(r, t, -6.34846687e-1f);
    r = __builtin_fmaf(r, t, -1.28717512e-1f); r = __builtin_fmaf(r, t, -t);
    r = 1.0f - tw_exp_neg(r); r = __builtin_copysignf(r, a);
    float q = -5.96761703e-4f;
    q = __builtin_fmaf(q, s, 4.99119423e-3f); q = __builtin_fmaf(q, s, -2.67681349e-2f); q = __builtin_fmaf(q, s, 1.12819925e-1f);
    q = __builtin_fmaf(q, s, -3.76125336e-1f); q = __builtin_fmaf(q, s, 1.28379166e-1f); q = __builtin_fmaf(q, a, a);
    r = t > 0.927734375f ? r : q;
    return a != a ? a : r;
}

/* sin and cos hold up to here; a block of a loop that meets more is done again by the C library */
#define TW_BIG(x) (!(__builtin_fabsf(x) <= 48039.f))

TWI float tw_sincos_part(float r, int i) {
    float s = r * r;
    float c = 2.44677067e-5f;
    c = __builtin_fmaf(c, s, -1.38877297e-3f); c = __builtin_fmaf(c, s, 4.16666567e-2f); c = __builtin_fmaf(c, s, -0.5f); c = __builtin_fmaf(c, s, 1.0f);
    float n = 2.86567956e-6f;
    n = __builtin_fmaf(n, s, -1.98559923e-4f); n = __builtin_fmaf(n, s, 8.33338592e-3f); n = __builtin_fmaf(n, s, -1.66666672e-1f);
    float t = r * s;
    n = __builtin_fmaf(n, t, r);
    float v = (i & 1) ? c : n;
    return tw_bits_uf(tw_bits_fu(v) ^ ((unsigned)(i & 2) << 30));
}

TWI float tw_sin(float x) {
    float t = __builtin_fmaf(x, 0.636619747f, 12582912.f), j = t - 12582912.f;
    float r = __builtin_fmaf(j, -1.57079601e+00f, x);
    r = __builtin_fmaf(j, -3.13916473e-07f, r); r = __builtin_fmaf(j, -5.39030253e-15f, r);
    return x == 0.f ? x : tw_sincos_part(r, tw_bits_fi(t));
}

TWI float tw_cos(float x) {
    float t = __builtin_fmaf(x, 0.636619747f, 12582912.f), j = t - 12582912.f;
    float r = __builtin_fmaf(j, -1.57079601e+00f, x);
    r = __builtin_fmaf(j, -3.13916473e-07f, r); r = __builtin_fmaf(j, -5.39030253e-15f, r);
    return tw_sincos_part(r, tw_bits_fi(t) + 1);
}

extern double tw_libm_pow(double, double) __asm__("pow");

TWI float tw_pow(float x, float y) {
    float a = __builtin_fabsf(x);
    int ordinary = a > 0.f && a < __builtin_inff() && y - y == 0.f;
    double t = tw_log2_wide(ordinary ? (double)a : 1.0) * (ordinary ? (double)y : 0.0);
    t = t > 200.0 ? 200.0 : t < -200.0 ? -200.0 : t;
    float r = (float)tw_exp2_wide(t);
    float whole = __builtin_truncf(y), half = __builtin_truncf(y * 0.5f);
    int odd = whole == y && half * 2.f != y;
    float negative = whole != y ? __builtin_nanf("") : odd ? -r : r;
    r = x < 0.f ? negative : r;
    int big = a > 1.f, one = a == 1.f;
    float grows = (y > 0.f) == big ? __builtin_inff() : 0.f;
    float power_inf = one ? 1.f : grows;
    float base = y > 0.f ? (a == 0.f ? 0.f : __builtin_inff()) : (a == 0.f ? __builtin_inff() : 0.f);
    base = odd && tw_signbit(x) ? -base : base;
    float special = y - y != 0.f ? power_inf : base;
    r = ordinary ? r : special;
    r = x != x || y != y ? x + y : r;
    return y == 0.f || x == 1.f ? 1.f : r;
}

TWI float tw_sinh(float x) {
    float a = __builtin_fabsf(x);
    double c = a > 90.f ? 90.0 : a != a ? 0.0 : (double)a, q = c * c;
    double near = 2.505210838544172e-8;
    near = __builtin_fma(near, q, 2.755731922398589e-6); near = __builtin_fma(near, q, 1.984126984126984e-4);
    near = __builtin_fma(near, q, 8.333333333333333e-3); near = __builtin_fma(near, q, 1.6666666666666666e-1); near = __builtin_fma(near, q * c, c);
    double e = tw_exp2_wide(c * 1.44269504088896340736), far = 0.5 * (e - 1.0 / e);
    float y = __builtin_copysignf((float)(c < 1.0 ? near : far), x);
    return x != x ? x : y;
}

TWI float tw_cosh(float x) {
    float a = __builtin_fabsf(x);
    double c = a > 90.f ? 90.0 : a != a ? 0.0 : (double)a, e = tw_exp2_wide(c * 1.44269504088896340736);
    return x != x ? x : (float)(0.5 * (e + 1.0 / e));
}

/* atan of a nonnegative double to about 1e-11: halved argument, then its series */
TWI double tw_atan_wide(double x) {
    double z = x > 1.0 ? 1.0 / x : x;
    double h = z / (1.0 + __builtin_sqrt(1.0 + z * z)), g = h / (1.0 + __builtin_sqrt(1.0 + h * h)), q = g * g;
    double p = 0.06666666666666667;
    p = __builtin_fma(-p, q, 0.07692307692307693); p = __builtin_fma(-p, q, 0.09090909090909091); p = __builtin_fma(-p, q, 0.1111111111111111);
    p = __builtin_fma(-p, q, 0.14285714285714285); p = __builtin_fma(-p, q, 0.2); p = __builtin_fma(-p, q, 0.3333333333333333);
    p = __builtin_fma(-p, q, 1.0);
    double a = 4.0 * p * g;
    return x > 1.0 ? 1.57079632679489661923 - a : a;
}

TWI float tw_atan(float x) {
    float a = __builtin_fabsf(x);
    float y = (float)tw_atan_wide(a > 1e30f ? 1e30 : a != a ? 0.0 : (double)a);
    y = __builtin_copysignf(y, x);
    return x != x ? x : y;
}

TWI float tw_asin(float x) {
    double a = __builtin_fabsf(x), c = a <= 1.0 ? a : 0.0;
    float y = (float)tw_atan_wide(c >= 1.0 ? 1e30 : c / __builtin_sqrt((1.0 - c) * (1.0 + c)));
    y = __builtin_copysignf(y, x);
    return x == 0.f ? x : a <= 1.0 ? y : __builtin_nanf("");
}

TWI float tw_acos(float x) {
    double a = x, c = a >= -1.0 && a <= 1.0 ? a : 1.0;
    double y = 2.0 * tw_atan_wide(c <= -1.0 ? 1e30 : __builtin_sqrt((1.0 - c) / (1.0 + c)));
    return a >= -1.0 && a <= 1.0 ? (float)y : __builtin_nanf("");
}

TWI float tw_tan(float x) { return (float)tw_libm_tan((double)x); }

TWI float tw_asinh(float x) {
    double a = __builtin_fabsf(x), c = a < __builtin_inf() ? a : 1.0, s = __builtin_sqrt(c * c + 1.0), u = c + c * c / (s + 1.0);
    double v = u / (u + 2.0), q = v * v, near = 0.1818181818181818;
    near = __builtin_fma(near, q, 0.2222222222222222); near = __builtin_fma(near, q, 0.2857142857142857); near = __builtin_fma(near, q, 0.4);
    near = __builtin_fma(near, q, 0.6666666666666666); near = __builtin_fma(near, q, 2.0);
    float y = (float)(u < 0.25 ? near * v : tw_log2_wide(1.0 + u) * 0.69314718055994530942);
    y = __builtin_copysignf(a == __builtin_inf() ? __builtin_inff() : y, x);
    return x != x ? x : y;
}

TWI float tw_acosh(float x) {
    double a = x, c = a >= 1.0 && a < __builtin_inf() ? a - 1.0 : 0.0, u = c + __builtin_sqrt(c * (c + 2.0));
    double v = u / (u + 2.0), q = v * v, near = 0.1818181818181818;
    near = __builtin_fma(near, q, 0.2222222222222222); near = __builtin_fma(near, q, 0.2857142857142857); near = __builtin_fma(near, q, 0.4);
    near = __builtin_fma(near, q, 0.6666666666666666); near = __builtin_fma(near, q, 2.0);
    float y = (float)(u < 0.25 ? near * v : tw_log2_wide(1.0 + u) * 0.69314718055994530942);
    return x >= 1.f ? (x == __builtin_inff() ? x : y) : __builtin_nanf("");
}

TWI float tw_atanh(float x) {
    double a = __builtin_fabsf(x), c = a < 1.0 ? a : 0.0, q = c * c, near = 0.09090909090909091;
    near = __builtin_fma(near, q, 0.1111111111111111); near = __builtin_fma(near, q, 0.14285714285714285); near = __builtin_fma(near, q, 0.2);
    near = __builtin_fma(near, q, 0.3333333333333333); near = __builtin_fma(near, q, 1.0);
    float y = (float)(c < 0.125 ? near * c : 0.5 * tw_log2_wide((1.0 + c) / (1.0 - c)) * 0.69314718055994530942);
    y = a == 1.0 ? __builtin_inff() : y;
    y = __builtin_copysignf(y, x);
    return x == 0.f ? x : a <= 1.0 ? y : __builtin_nanf("");
}

TWI float tw_erfc(float x) { return (float)tw_libm_erfc((double)x); }

TWI float tw_lgamma(float x) { int sign; return (float)tw_libm_lgamma_r((double)x, &sign); }

TWI double tw_lgamma_d(double x) { int sign; return tw_libm_lgamma_r(x, &sign); }

TWI float tw_atan2(float y, float x) { return (float)tw_libm_atan2((double)y, (double)x); }

TWI float tw_hypot(float x, float y) {
    double a = x, b = y;
    float r = (float)__builtin_sqrt(a * a + b * b);
    return __builtin_fabsf(x) == __builtin_inff() || __builtin_fabsf(y) == __builtin_inff() ? __builtin_inff() : r;
}

TWI float tw_nextafter(float x, float y) { return tw_libm_nextafterf(x, y); }

TWI float tw_ldexp(float x, float y) { return x * tw_exp2(y); }

TWI double tw_ldexp_d(double x, double y) { return x * tw_exp2_d(y); }

TWI float tw_fmod(float x, float y) { return tw_libm_fmodf(x, y); }

TWI float tw_mod(float x, float y) {
    float r = tw_libm_fmodf(x, y);
    return r != 0.f && (r < 0.f) != (y < 0.f) ? r + y : r;
}

TWI double tw_mod_d(double x, double y) {
    double r = tw_libm_fmod(x, y);
    return r != 0.0 && (r < 0.0) != (y < 0.0) ? r + y : r;
}

TWI float tw_floordiv_f(float x, float y) {
    float r = tw_libm_fmodf(x, y), q = (x - r) / y;
    q = r != 0.f && (y < 0.f) != (r < 0.f) ? q - 1.f : q;
    float f = __builtin_floorf(q);
    f = q - f > 0.5f ? f + 1.f : f;
    return y == 0.f ? x / y : q != 0.f ? f : __builtin_copysignf(0.f, x / y);
}

TWI double tw_floordiv_d(double x, double y) {
    double r = tw_libm_fmod(x, y), q = (x - r) / y;
    q = r != 0.0 && (y < 0.0) != (r < 0.0) ? q - 1.0 : q;
    double f = __builtin_floor(q);
    f = q - f > 0.5 ? f + 1.0 : f;
    return y == 0.0 ? x / y : q != 0.0 ? f : __builtin_copysign(0.0, x / y);
}

TWI float tw_truncdiv(float x, float y) { return __builtin_truncf(x / y); }

TWI double tw_truncdiv_d(double x, double y) { return __builtin_trunc(x / y); }

static __attribute__((noinline)) double tw_digamma_d(double x) {
    if (x == 0.0) return __builtin_copysign(__builtin_inf(), -x);
    double r = 0.0;
    if (x < 0.0) {
        if (__builtin_floor(x) == x) return __builtin_nan("");
        r = -3.14159265358979323846 / tw_libm_tan(3.14159265358979323846 * (x - __builtin_trunc(x)));
        x = 1.0 - x;
    }
    for (; x < 10.0; x += 1.0) r -= 1.0 / x;
    double z = 1.0 / (x * x), p = 8.33333333333333333333e-2;
    p = p * z - 2.10927960927960927961e-2; p = p * z + 7.57575757575757575758e-3; p = p * z - 4.16666666666666666667e-3;
    p = p * z + 3.96825396825396825397e-3; p = p * z - 8.33333333333333333333e-3; p = p * z + 8.33333333333333333333e-2;
    return r + tw_libm_log(x) - 0.5 / x - p * z;
}

TWI float tw_digamma(float x) { return (float)tw_digamma_d((double)x); }

/* the inverse of erf: a rough start, then Newton steps on erf itself (on erfc in the tail, where erf has no digits left) */
static __attribute__((noinline)) double tw_erfinv_d(double y) {
    double a = __builtin_fabs(y);
    if (!(a <= 1.0)) return __builtin_nan("");
    if (a == 1.0) return __builtin_copysign(__builtin_inf(), y);
    double w = tw_libm_log((1.0 - a) * (1.0 + a)), t = 4.3307467508 + 0.5 * w;
    double x = __builtin_sqrt(__builtin_sqrt(t * t - w * 6.8027210884) - t);
    for (int k = 0; k < 4; k++) {
        double slope = 1.12837916709551257390 * tw_libm_exp(-x * x), miss = a > 0.5 ? (1.0 - a) - tw_libm_erfc(x) : tw_libm_erf(x) - a;
        double step = miss / slope;
        x -= step / (1.0 + x * step);
    }
    return __builtin_copysign(x, y);
}

TWI float tw_erfinv(float y) { return (float)tw_erfinv_d((double)y); }

TWI float tw_logaddexp(float a, float b) {
    float low = tw_min(a, b), high = tw_max(a, b);
    return low == high && low - low != 0.f ? low : high + tw_log1p(tw_exp(low - high));
}

TWI double tw_logaddexp_d(double a, double b) {
    double low = tw_min_d(a, b), high = tw_max_d(a, b);
    return low == high && low - low != 0.0 ? low : high + tw_log1p_d(tw_exp_d(low - high));
}

TWI double tw_sigmoid_d(double x) { return 1.0 / (1.0 + tw_libm_exp(-x)); }

TWI float tw_sin_exact(float x) { return (float)tw_libm_sin((double)x); }

TWI float tw_cos_exact(float x) { return (float)tw_libm_cos((double)x); }

/* t[k][j] = x[k + j*stride], 16 by 16 elements of 4 bytes: four rounds of exchanges between rows 8, 4, 2 and 1 apart */
TWI void tw_turn16(const void *x, long stride, void *t) {
    typedef int lanes __attribute__((vector_size(64)));
    typedef int loose __attribute__((vector_size(64), aligned(4), may_alias));
    lanes r[16], s[16];
    for (int k = 0; k < 16; k++) r[k] = *(const loose *)((const int *)x + k * stride);
#ifdef __clang__
#define TW_MIX(...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define TW_MIX(...) __builtin_shuffle(a, b, (lanes){__VA_ARGS__})
#endif
#define TW_ROUND(d, low, high) for (int k = 0; k < 16; k++) if (!(k & d)) { lanes a = r[k], b = r[k + d]; s[k] = low; s[k + d] = high; } \
    for (int k = 0; k < 16; k++) r[k] = s[k];
    TW_ROUND(8, TW_MIX(0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23), TW_MIX(8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31))
    TW_ROUND(4, TW_MIX(0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27), TW_MIX(4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31))
    TW_ROUND(2, TW_MIX(0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29), TW_MIX(2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31))
    TW_ROUND(1, TW_MIX(0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30), TW_MIX(1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31))
#undef TW_MIX
#undef TW_ROUND
    for (int k = 0; k < 16; k++) *(loose *)((int *)t + 16 * k) = r[k];
}

extern void *tw_libc_malloc(unsigned long) __asm__("malloc");

extern void tw_libc_free(void *) __asm__("free");

TWI void *tw_row_alloc(unsigned long bytes) { return tw_libc_malloc(bytes + 64); }

TWI void tw_row_free(void *row) { tw_libc_free(row); }

extern double tw_libm_lgamma_r(double, int *) __asm__("lgamma_r");

extern float tw_libm_fmodf(float, float) __asm__("fmodf");

extern float tw_libm_nextafterf(float, float) __asm__("nextafterf");
"""

ONE_ARGUMENT = ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
                "asinh", "acosh", "atanh", "erf", "erfc")
TWO_ARGUMENTS = ("atan2", "hypot", "fmod", "nextafter", "pow")
_WORDS = re.compile(r"\b(?:tw_\w+|TW_\w+|TWI)\b")


@cache
def chunks() -> dict[str, tuple[int, str]]:
    """name → (position, text) of every function; helpers stand before their users."""
    texts = [*TEXT.strip("\n").split("\n\n"), *MOMENTS.strip("\n").split("\n\n")]
    library = [f'extern double tw_libm_{n}(double) __asm__("{n}");' for n in ONE_ARGUMENT]
    library += [f'extern double tw_libm_{n}(double, double) __asm__("{n}");' for n in TWO_ARGUMENTS if n != "pow"]
    externs = [t for t in texts if t.startswith("extern")]
    wide = [f"TWI double tw_{n}_d(double x) {{ return tw_libm_{n}(x); }}" for n in ONE_ARGUMENT]
    wide += [f"TWI double tw_{n}_d(double x, double y) {{ return tw_libm_{n}(x, y); }}" for n in TWO_ARGUMENTS]
    rest = [t for t in texts if not t.startswith("extern")]
    ordered = [rest[0], *externs, *library, *wide, *rest[1:]]
    return {_name(text): (k, text) for k, text in enumerate(ordered)}


def _name(text: str) -> str:
    """What a chunk defines: the first of its own names that opens a parameter list, or a macro."""
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.S).strip()
    if code.startswith("#define"):
        return code.split()[1].split("(")[0]
    return re.search(r"\b(tw_\w+)\s*\(", code).group(1)


def needed(text: str) -> str:
    """The chunks that `text` uses, directly or through others, in order of definition."""
    table = chunks()
    found: set[str] = set()
    stack = [text]
    while stack:
        for word in set(_WORDS.findall(stack.pop())):
            if word in table and word not in found:
                found.add(word)
                stack.append(table[word][1])
    return "\n".join(text for _, text in sorted(table[name] for name in found))
