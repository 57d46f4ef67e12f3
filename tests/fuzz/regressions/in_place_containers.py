# backend: eager
# differed in: arguments
import collections
import torch


def f(t1, l2, s3, d4):
    l2 *= 2
    s3 &= {1, 2}
    s3 ^= {2, 5}
    s3 -= {1}
    d5 = collections.defaultdict(list, d4) | {'b': 1}
    d5['new'].append(3)
    return (t1 + len(l2), l2, d5)


ARGUMENTS = [lambda: [torch.ones(2), [1, 2], {1, 2, 3}, {'a': 1}], lambda: [torch.ones(2), [], {1, 3}, {}]]
