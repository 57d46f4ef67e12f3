"""Which operators of torch draw random numbers, by name. They are called in program order, each as often as eager calls it."""

from __future__ import annotations

RANDOM = frozenset({
    "bernoulli", "bernoulli_", "rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm", "normal", "normal_",
    "uniform", "uniform_", "random", "random_", "exponential", "exponential_", "cauchy_", "log_normal_", "geometric_", "multinomial",
    "native_dropout", "poisson", "binomial", "rrelu_with_noise", "rrelu_with_noise_", "normal_functional", "_standard_gamma",
    "_sample_dirichlet", "cauchy", "log_normal", "geometric",
})
