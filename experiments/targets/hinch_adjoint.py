"""Adjoint (reverse-mode derivative) of the cell model.

A name that ends in ``_`` is the derivative of a scalar output by the variable with the name without ``_``.
``f_adjoint`` takes the derivatives by the results of ``f`` and returns those by its arguments. The gradient by all 38
parameters thus costs about three times as much as the slopes; forward derivatives cost that much for each parameter.

A. Griewank and A. Walther, "Evaluating derivatives", SIAM (2008).
"""

from __future__ import annotations

from experiments.targets._jit import inlined
from experiments.targets.hinch import RATIO, Groups, Numbers, channels, currents, inverses, unbuffered, units


@inlined
def channels_adjoint(
    k: Groups, C: float, S: float, rates: Numbers, seen: Numbers, shares_: Numbers, rates_: Numbers
) -> tuple[Numbers, Numbers, float, float]:
    """Return the derivatives by the first two groups of constants, by C and by S."""
    slope, _, _, phi, a, m, opened, closed = k[0]
    _, _, up, down, own, store, rest, _ = k[1]
    D, u, v, P, Q, X, Y, W, Z, i, j, oo, co, f, g, p, q, iu, iv, fall, both = seen
    _, _, r3, r4, _, _ = rates
    oo_, oc_, co_, ro_ = shares_
    r1_, r2_, r3_, r4_, r5_, r7_ = rates_

    # r5 and r7: inactivation of the L-type channel
    y = co * both + (1.0 - co) * C
    rest_ = closed * (r5_ * y + r7_ * C)
    closed_ = rest * (r5_ * y + r7_ * C)
    y_ = r5_ * (rest * closed)
    both_ = y_ * co
    C_ = y_ * (1.0 - co) + r7_ * (rest * closed) + both_ * own
    # r2 and r4: recovery of the store channel; r1 and r3: its inactivation
    r4_ = r4_ + r2_ * closed
    fall_ = r2_ * opened
    down_ = r4_ * (p * iu) + fall_ * (q * iv)
    u_, v_ = -r4_ * r4 * iu, -fall_ * fall * iv
    lower_ = u_ + v_
    up_ = r1_ * (opened * f * q + closed * g * p) + r3_ * (p * j)
    f_, g_ = r1_ * up * q, r1_ * up * p
    p_ = r1_ * up * closed * g + r3_ * up * j + r4_ * down * iu
    q_ = r1_ * up * opened * f + fall_ * down * iv
    # oo, oc, co, f, g: fractions with a common denominator
    opened_ = oo_ * oo + oc_ * (1.0 - oo) + f_ * f + r2_ * fall
    closed_ = closed_ + co_ * co + g_ * g + r2_ * r4
    oo_, co_ = (oo_ - oc_) * opened * i, (co_ * closed + y_ * (both - C)) * i
    f_, g_ = f_ * opened * i, g_ * closed * i
    all_ = -(oo_ * oo + co_ * co + f_ * f + g_ * g)
    W_, Z_ = co_ * u + g_ + all_ * X, oo_ * v + f_
    aP_, mQ_ = co_ * v + all_ * Y + Z_, oo_ * u + W_
    X_ = all_ * W + Z_ - (ro_ * (u * j) + r3_ * r3) * j
    Y_ = all_ * (a * P) + W_
    P_, Q_ = aP_ * a + f_ * m + X_ * phi, mQ_ * m + g_ * a + Y_ * phi
    u_ = u_ + p_ + P_ + X_ + oo_ * (m * Q) + co_ * W + ro_ * j
    v_ = v_ + q_ + Q_ + Y_ + oo_ * Z + co_ * (a * P)
    D_ = v_ * (2.0 * D)
    return (
        (D_ * C, D_, P_ + Q_, X_ * P + Y_ * Q, aP_ * P + g_ * Q, mQ_ * Q + f_ * P, opened_, closed_),
        (p_ + q_, lower_, up_, down_, both_ * C, both_ * S, rest_, 0.0),
        C_ + u_ * (2.0 * C) + D_ * slope,
        both_ * store,
    )


@inlined
def units_adjoint(
    rates: Numbers, wake: float, z: Numbers, inverse: Numbers, z_: Numbers, slopes_: Numbers, g: float
) -> tuple[Numbers, float, Numbers]:
    """Return the derivatives by the rates, by the rate of recovery and by z - g z'."""
    r1, r2, r3, r4, r5, r7 = rates
    m11, m12, m13, m21, m22, m23, m31, m32, m33 = inverse
    z1, z2, z3, z4 = z
    s1, s2, s3 = slopes_
    s4 = wake * s2 + r4 * s3
    b1 = z_[0] + r1 * (s2 - s1) + r5 * (s3 - s1) - s4
    b2 = z_[1] + r2 * (s1 - s2) - r7 * s2 - s4
    b3 = z_[2] + wake * (s1 - s3) - r3 * s3 - s4
    b1, b2, b3 = m11 * b1 + m21 * b2 + m31 * b3, m12 * b1 + m22 * b2 + m32 * b3, m13 * b1 + m23 * b2 + m33 * b3
    s1, s2, s3 = s1 + g * b1, s2 + g * b2, s3 + g * b3
    rates_ = (z1 * (s2 - s1), z2 * (s1 - s2), -z3 * s3, z4 * s3, z1 * (s3 - s1), -z2 * s2)
    return rates_, z3 * (s1 - s3) + z4 * s2, (b1, b2, b3)


@inlined
def currents_adjoint(
    k: Groups, C: float, S: float, z: Numbers, shares: Numbers, log: float, seen: Numbers, e_: float, r_: float
) -> tuple[Numbers, Numbers, Numbers, Numbers, float, float, float]:
    """Return the derivatives by shares, z, the third and fourth group of constants, `opened`, C and S."""
    opened = k[0][6]
    R_co, R_oo, L_oc, L_oo, R, L, w = k[2]
    _, exchanger, _, g_S, _, g_p, _, leak = k[3]
    oo, oc, co, ro = shares
    J_Rco, J_Roo, J_Loc, J_Loo, i, j = seen
    z1, z2, z3, _ = z
    r_ = r_ + e_  # calcium that leaves the store enters the cell
    shares_ = (z1 * (r_ * J_Roo + e_ * J_Loo), z1 * e_ * J_Loc, z1 * r_ * J_Rco, z3 * r_ * J_Rco)
    z1_ = r_ * (oo * J_Roo + co * J_Rco) + e_ * (oo * J_Loo + oc * J_Loc)
    z_ = (z1_, e_ * opened * J_Loc, r_ * ro * J_Rco)
    J_Rco_, J_Roo_ = r_ * (z1 * co + z3 * ro), r_ * z1 * oo
    J_Loc_, J_Loo_ = e_ * (z1 * oc + z2 * opened), e_ * z1 * oo
    R1, R2, L1, L2 = J_Rco_ * R_co, J_Roo_ * R_oo, J_Loc_ * L_oc, J_Loo_ * L_oo
    x, y = C * C * i, C * j
    C_ = -(R1 + R2 + L1 + L2) - r_ * (g_S * (2.0 * C * i) * (1.0 - x) + leak)
    C_ = C_ - e_ * (exchanger + g_p * j * (1.0 - y))
    flows_ = (
        J_Rco_ * (S - C),
        J_Roo_ * (S - C + L * (S - w)),
        J_Loc_ * (w - C),
        J_Loo_ * (w - C + R * (w - S)),
        L2 * (w - S),
        R2 * (S - w),
        L1 + L2 * (1.0 + R) - R2 * L,
    )
    pumps_ = (e_, -e_ * C, -e_ * log, -r_ * x, r_ * g_S * x * i, -e_ * y, e_ * g_p * y * j, r_ * (S - C))
    return shares_, z_, flows_, pumps_, z2 * e_ * J_Loc, C_, R1 + R2 * (1.0 + L) - L2 * R + r_ * leak


@inlined
def stiffness_adjoint(k: Groups, C: float, B: float, s_: float) -> tuple[Groups, float, float]:
    """Return the derivatives by the constants, by C and by B."""
    _, exchanger, _, g_S, K_S, g_p, K_p, _ = k[3]
    k_p = k[4][2]
    free, by_C, by_kB = unbuffered(k, C)
    i, j = inverses(K_S + C * C, K_p + C)
    lift, pump = 2.0 * C * K_S * i * i, K_p * j * j
    y_, free_ = s_ * free, s_ * (k_p * B + exchanger + g_S * lift + g_p * pump)
    lift_, pump_ = y_ * g_S, y_ * g_p
    K_S_, K_p_ = lift_ * (2.0 * i) * (C * i - lift), pump_ * j * (j - 2.0 * pump)
    C_ = lift_ * (2.0 * i) * (K_S * i - 2.0 * C * lift) - pump_ * (2.0 * pump * j) + free_ * by_C
    nothing = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    return (
        (
            nothing,
            nothing,
            (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
            (0.0, y_, 0.0, y_ * lift, K_S_, y_ * pump, K_p_, 0.0),
            (0.0, 0.0, y_ * B, free_ * by_C, -free_ * by_kB),
        ),
        C_,
        y_ * k_p,
    )


@inlined
def slopes_adjoint(k: Groups, x: Numbers, log: float, g: float, slopes_: Numbers) -> tuple[Groups, Numbers, float]:
    """Return the derivatives by the constants, by x and by the logarithm."""
    C, S, z1, z2, z3, B = x
    made, k_m, k_p, _, _ = k[4]
    wake = k[1][7]
    shares, rates, seen = channels(k, C, S)
    z, _, inverse = units(rates, wake, (z1, z2, z3), g)
    rate = k_m + k_p * C
    i = 1.0 / (1.0 + g * rate)
    B = (B + g * made) * i
    entered, _, flows = currents(k, C, S, z, shares, log)
    free, by_C, by_kB = unbuffered(k, C)

    e_, free_ = slopes_[0] * free, slopes_[0] * (entered + made - rate * B)
    r_ = -RATIO * slopes_[1]
    shares_, z_, flows_, pumps_, opened_, C_, S_ = currents_adjoint(k, C, S, z, shares, log, flows, e_, r_)
    rates_, wake_, z_ = units_adjoint(rates, wake, z, inverse, z_, (slopes_[2], slopes_[3], slopes_[4]), g)
    open_, rest_, more_C_, more_S_ = channels_adjoint(k, C, S, rates, seen, shares_, rates_)
    freed_ = slopes_[5] + e_
    B_ = -freed_ * rate * i
    made_, rate_ = freed_ + g * B_, -(freed_ + g * B_) * B
    return (
        (
            (open_[0], open_[1], open_[2], open_[3], open_[4], open_[5], open_[6] + opened_, open_[7]),
            (rest_[0], rest_[1], rest_[2], rest_[3], rest_[4], rest_[5], rest_[6], wake_),
            flows_,
            pumps_,
            (made_, rate_, rate_ * C, free_ * by_C, -free_ * by_kB),
        ),
        (C_ + more_C_ + rate_ * k_p + free_ * by_C, S_ + more_S_, z_[0], z_[1], z_[2], B_),
        -e_ * k[3][2],
    )
