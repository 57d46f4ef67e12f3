"""A plan as text."""

from schedule.programs import Draft, op, softmax
from thruway.core.settings import Settings
from thruway.core.sizes import symbol
from thruway.core.target import Target
from thruway.schedule.build import build_plan
from thruway.schedule.show import show_plan


def test_a_plan_shows_places_steps_and_predictions():
    d = Draft()
    d.input("x", symbol("s0"), 4), d.input("w", 4, 4)
    d.matmul("m", "x", "w")
    softmax(d, "p", op("exp", d.at("m")), (symbol("s0"), 4))
    assert show_plan(build_plan(d.program("p"), Target(), Settings())) == """\
buffers
  x: input f32[s0, 4] strides (4, 1)
  w: input f32[4, 4] strides (4, 1)
  m: temp f32[s0, 4] strides (4, 1)  # in the arena at 0
  p: temp f32[s0, 4] strides (4, 1)  # output
steps
  m[s0, 4]: f32 = aten::mm(x, w)
  kernel k1(m) -> p
    scratch p_exp: temp f32[4]
    for i0<s0:
      for r0<4:
        v0: f32 = max of exp(m[i0, r0])
      for r0<4:
        v1 = exp((exp(m[i0, r0]) - v0))
        v2: f32 = sum of v1
        p_exp[r0] = v1
      for r0<4:
        v3 = (p_exp[r0] / v2)
        p[i0, r0] = v3
outputs
  p
arena: 64*((s0 + 3)//(4)) bytes
predicted
  fuse p_exp with p_max: 640 bytes, 0.35 µs
  fuse p_sum with p_exp: 512 bytes, 0.34 µs
  fuse p with p_sum: 640 bytes, 0.35 µs
"""
