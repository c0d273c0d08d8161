r"""Model of calcium dynamics in a heart muscle cell (Hinch et al., 2004).

The state consists of the calcium concentrations in the cell, C, and in the sarcoplasmic reticulum (the store), S; the
fractions z1, z2, z3 of calcium release units in three of their four states; and the concentration B of troponin without
bound calcium.

.. math::

    C' = \frac{I_{LCC} + I_{RyR} - I_{SERCA} + I_{SR} + I_{NCX} - I_p + I_{CaB} + I_T}{1 + k B_{CMDN} / (k + C)^2}

    S' = \frac{V_{myo}}{V_{SR}} (I_{SERCA} - I_{SR} - I_{RyR}), \qquad z' = A(C, S) z + b(C), \qquad B' = I_T

Each release unit has an L-type channel to the outside (LCC) and a store channel (RyR). Active channels are in
equilibrium; high calcium inactivates them slowly. In z1 both channels are active, in z2 the store channel is inactive,
in z3 the L-type channel is inactive, and in z4 = 1 - z1 - z2 - z3 both are. Units: ms, mM, mV, um.

Quantities that depend only on the parameters and the voltage are computed once per voltage (`constants`). The rest is
straight-line arithmetic that is vectorised over several cells. Its derivative is in `hinch_adjoint`.

R. Hinch, J. L. Greenstein, A. J. Tanskanen, L. Xu, R. L. Winslow, "A simplified local control model of
calcium-induced calcium release in cardiac ventricular myocytes", Biophysical Journal 87 (2004); constants as in its
CellML encoding.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from experiments.targets._jit import inlined, jit

#: Name, value and unit of the 38 free parameters, in order.
PARAMETERS: dict[str, tuple[float, str]] = {
    "g_D": (0.065, "um^3/ms"),
    "J_R": (0.02, "um^3/ms"),
    "J_L": (0.000913, "um^3/ms"),
    "N": (50000.0, ""),
    "Ca_o": (1.0, "mM"),
    "V_L": (-2.0, "mV"),
    "del_VL": (7.0, "mV"),
    "phi_L": (2.35, ""),
    "t_L": (1.0, "ms"),
    "t_R": (1.17, "ms"),
    "tau_L": (650.0, "ms"),
    "tau_R": (2.43, "ms"),
    "phi_R": (0.05, ""),
    "theta_R": (0.012, ""),
    "K_RyR": (0.041, "mM"),
    "K_L": (0.00022, "mM"),
    "a": (0.0625, ""),
    "b": (14.0, ""),
    "c": (0.01, ""),
    "d": (100.0, ""),
    "K_mNa": (87.5, "mM"),
    "K_mCa": (1.38, "mM"),
    "eta": (0.35, ""),
    "k_sat": (0.1, ""),
    "g_NCX": (0.0385, "mM/ms"),
    "Na_i": (10.0, "mM"),
    "Na_o": (140.0, "mM"),
    "g_SERCA": (0.00045, "mM/ms"),
    "K_SERCA": (0.0005, "mM"),
    "g_pCa": (3.5e-06, "mM/ms"),
    "K_mpCa": (0.0005, "mM"),
    "g_CaB": (2.6875e-08, "mM/(mV ms)"),
    "g_SRl": (1.8951e-05, "1/ms"),
    "k_m_TRPN": (0.04, "1/ms"),
    "k_p_TRPN": (40.0, "1/(mM ms)"),
    "B_TRPN": (0.07, "mM"),
    "k_CMDN": (0.002382, "mM"),
    "B_CMDN": (0.05, "mM"),
}

#: C, S, z1, z2, z3, B at rest at -80 mV.
REST = (1e-4, 0.7, 0.98859, 0.0087302, 0.0026566, 0.0636364)

_GAS, _TEMPERATURE, _FARADAY = 8314.5, 295.0, 96487.0  # mJ/(mol K), K, C/mol
_V_MYO, _V_SR = 25840.0, 2098.0  # um^3
RATIO = _V_MYO / _V_SR

CONSTANTS = 36

Values = NDArray[np.float64] | NDArray[np.complex128]
Numbers = tuple[float, ...]
Groups = tuple[Numbers, Numbers, Numbers, Numbers, Numbers]


@jit
def constants(theta: Values, voltage: float) -> Groups:
    """Compute the quantities that depend only on the parameters (38,) and the voltage.

    The parameters may be complex: with an imaginary part of 1e-30 in one parameter, the imaginary parts of the results
    divided by 1e-30 are the derivatives by this parameter, without cancellation (complex step).

    Returns
    -------
    tuple of tuple
        The quantities in groups.
    """
    g_D, J_R, J_L, N, Ca_o = theta[0], theta[1], theta[2], theta[3], theta[4]
    V_L, del_VL, phi_L, t_L, t_R = theta[5], theta[6], theta[7], theta[8], theta[9]
    tau_L, tau_R, phi_R, theta_R, K_RyR = theta[10], theta[11], theta[12], theta[13], theta[14]
    K_L, a, b, c, d = theta[15], theta[16], theta[17], theta[18], theta[19]
    K_mNa, K_mCa, eta, k_sat, g_NCX = theta[20], theta[21], theta[22], theta[23], theta[24]
    Na_i, Na_o, g_SERCA, K_SERCA, g_pCa = theta[25], theta[26], theta[27], theta[28], theta[29]
    K_mpCa, g_CaB, g_SRl, k_m, k_p = theta[30], theta[31], theta[32], theta[33], theta[34]
    B_TRPN, k_CMDN, B_CMDN = theta[35], theta[36], theta[37]

    p = _FARADAY * voltage / (_GAS * _TEMPERATURE)
    drive = 2.0 * p / (1.0 - math.exp(-2.0 * p)) if p != 0.0 else 1.0
    J_L = J_L * drive
    w = Ca_o * math.exp(-2.0 * p)
    R, L = J_R / g_D, J_L / g_D
    E = np.exp((voltage - V_L) / del_VL)
    opening, closing = E / (E + 1.0) * (t_R / t_L), phi_L * (t_R / t_L)
    K2 = K_RyR * K_RyR
    units = N / _V_MYO
    outward = np.exp((eta - 1.0) * p)
    exchange = g_NCX / ((Na_o**3 + K_mNa**3) * (Ca_o + K_mCa) * (1.0 + k_sat * outward))
    inward = exchange * np.exp(eta * p) * Na_i**3 * Ca_o
    background = g_CaB * (0.5 * _GAS * _TEMPERATURE / _FARADAY)
    opened, closed = opening / (opening + closing), closing / (opening + closing)
    rest, wake = (E + a) / (tau_L * K_L * (E + 1.0)), b * (E + a) / (tau_L * (b * E + a))
    return (
        # slope, shift, K2, phi, a, m, opened, closed: opening and closing (a, m: L-type channel, in units of 1/t_R)
        (1.0 / (1.0 + L), L * w / (1.0 + L), K2, phi_R, opening, closing, opened, closed),
        # low, lower, up, down, own, store, rest, wake: inactivation and recovery
        (c * K2, c * K2 / d, phi_R / tau_R, theta_R / tau_R, 1.0 / (1.0 + R), R / (1.0 + R), rest, wake),
        # R_co, R_oo, L_oc, L_oo, R, L, w: flow of calcium through open channels
        (
            units * J_R / (1.0 + R),
            units * J_R / (1.0 + R + L),
            units * J_L / (1.0 + L),
            units * J_L / (1.0 + R + L),
            R,
            L,
            w,
        ),
        # steady, exchanger, background, g_S, K_S, g_p, K_p, leak: exchanger, background, pumps and leak
        (
            inward + background * np.log(Ca_o) - g_CaB * voltage,
            exchange * outward * Na_o**3,
            background,
            g_SERCA,
            K_SERCA * K_SERCA,
            g_pCa,
            K_mpCa,
            g_SRl,
        ),
        # made, k_m, k_p, k_b, kB: troponin and calmodulin
        (k_m * B_TRPN, k_m, k_p, k_CMDN, k_CMDN * B_CMDN),
    )


@inlined
def gather(k: Values, j: int) -> Groups:
    """Return the constants of lane j of an array (36, lanes)."""
    return (
        (k[0, j], k[1, j], k[2, j], k[3, j], k[4, j], k[5, j], k[6, j], k[7, j]),
        (k[8, j], k[9, j], k[10, j], k[11, j], k[12, j], k[13, j], k[14, j], k[15, j]),
        (k[16, j], k[17, j], k[18, j], k[19, j], k[20, j], k[21, j], k[22, j]),
        (k[23, j], k[24, j], k[25, j], k[26, j], k[27, j], k[28, j], k[29, j], k[30, j]),
        (k[31, j], k[32, j], k[33, j], k[34, j], k[35, j]),
    )


@inlined
def scatter(groups: Groups, k: Values, j: int) -> None:
    """Add constants, or derivatives by constants, to lane j of an array (36, lanes)."""
    for i in range(8):
        k[i, j] += groups[0][i]
        k[8 + i, j] += groups[1][i]
        k[23 + i, j] += groups[3][i]
    for i in range(7):
        k[16 + i, j] += groups[2][i]
    for i in range(5):
        k[31 + i, j] += groups[4][i]


@inlined
def inverses(x: float, y: float) -> Numbers:
    """Return 1/x and 1/y with a single division, which costs as much as ten products."""
    inverse = 1.0 / (x * y)
    return y * inverse, x * inverse


@inlined
def channels(k: Groups, C: float, S: float) -> tuple[Numbers, Numbers, Numbers]:
    """Return the fractions of open channels, the rates r1 to r5 and r7, and intermediate values for the adjoint.

    The letters of oo, oc and co state whether the L-type channel and the store channel are o(pen) or c(losed), in this
    order; they are fractions of the units in z1. ro is the fraction of units in z3 with an open store channel. D is the
    calcium concentration near an open L-type channel. All expressions are multiplied by the denominators
    P = C^2 + K^2 and Q = D^2 + K^2.

    Returns
    -------
    tuple of tuple
        Fractions, rates and intermediate values.
    """
    slope, shift, K2, phi, a, m, opened, closed = k[0]
    low, lower, up, down, own, store, rest, _ = k[1]
    D = shift + slope * C
    u, v = C * C, D * D
    P, Q = u + K2, v + K2
    X, Y = phi * P + u, phi * Q + v
    W, Z = m * Q + Y, a * P + X
    i, j = inverses(W * X + a * P * Y, X)
    oo, co = (v * Z + u * (m * Q)) * i, (u * W + v * (a * P)) * i
    f, g = (Z + m * P) * i, (W + a * Q) * i
    p, q = u + low, v + low
    r1 = up * (opened * f * q + closed * g * p)
    r3 = up * p * j
    iu, iv = inverses(u + lower, v + lower)
    r4, fall = down * p * iu, down * q * iv
    r2 = opened * fall + closed * r4
    both = own * C + store * S
    r5 = rest * closed * (co * both + (1.0 - co) * C)
    r7 = rest * closed * C
    shares = (opened * oo, opened * (1.0 - oo), closed * co, u * j)
    return shares, (r1, r2, r3, r4, r5, r7), (D, u, v, P, Q, X, Y, W, Z, i, j, oo, co, f, g, p, q, iu, iv, fall, both)


@inlined
def units(rates: Numbers, wake: float, z: Numbers, g: float) -> tuple[Numbers, Numbers, Numbers]:
    """Return the fractions z1 to z4 for given z - g z', the slopes of z1 to z3, and the inverse matrix of the system.

    The transitions 1-2-4-3-1 give linear equations, which are solved by cofactors.

    Returns
    -------
    tuple of tuple
        The four fractions, the three slopes and the inverse matrix by rows.
    """
    r1, r2, r3, r4, r5, r7 = rates
    a11, a12, a13 = 1.0 + g * (r1 + r5), -g * r2, -g * wake
    a21, a22, a23 = g * (wake - r1), 1.0 + g * (r2 + r7 + wake), g * wake
    a31, a32, a33 = g * (r4 - r5), g * r4, 1.0 + g * (wake + r3 + r4)
    m11, m12, m13 = a22 * a33 - a23 * a32, a13 * a32 - a12 * a33, a12 * a23 - a13 * a22
    m21, m22, m23 = a23 * a31 - a21 * a33, a11 * a33 - a13 * a31, a13 * a21 - a11 * a23
    m31, m32, m33 = a21 * a32 - a22 * a31, a12 * a31 - a11 * a32, a11 * a22 - a12 * a21
    i = 1.0 / (a11 * m11 + a12 * m21 + a13 * m31)
    b1, b2, b3 = i * z[0], i * (z[1] + g * wake), i * (z[2] + g * r4)
    z1, z2, z3 = m11 * b1 + m12 * b2 + m13 * b3, m21 * b1 + m22 * b2 + m23 * b3, m31 * b1 + m32 * b2 + m33 * b3
    z4 = 1.0 - z1 - z2 - z3
    slope1 = r2 * z2 + wake * z3 - (r1 + r5) * z1
    slope2 = r1 * z1 + wake * z4 - (r2 + r7) * z2
    slope3 = r5 * z1 + r4 * z4 - (wake + r3) * z3
    inverse = (i * m11, i * m12, i * m13, i * m21, i * m22, i * m23, i * m31, i * m32, i * m33)
    return (z1, z2, z3, z4), (slope1, slope2, slope3), inverse


@inlined
def currents(k: Groups, C: float, S: float, z: Numbers, shares: Numbers, log: float) -> tuple[float, float, Numbers]:
    """Return the net currents into the cell (without troponin) and out of the store, and values for the adjoint."""
    opened = k[0][6]
    R_co, R_oo, L_oc, L_oo, R, L, w = k[2]
    steady, exchanger, background, g_S, K_S, g_p, K_p, leak = k[3]
    oo, oc, co, ro = shares
    J_Rco, J_Roo = R_co * (S - C), R_oo * (S - C + L * (S - w))
    J_Loc, J_Loo = L_oc * (w - C), L_oo * (w - C + R * (w - S))
    I_RyR = z[0] * (oo * J_Roo + co * J_Rco) + z[2] * ro * J_Rco
    I_LCC = z[0] * (oo * J_Loo + oc * J_Loc) + z[1] * opened * J_Loc
    i, j = inverses(K_S + C * C, K_p + C)
    released = I_RyR - g_S * (C * C * i) + leak * (S - C)
    entered = I_LCC + released + steady - exchanger * C - background * log - g_p * (C * j)
    return entered, released, (J_Rco, J_Roo, J_Loc, J_Loo, i, j)


@inlined
def unbuffered(k: Groups, C: float) -> Numbers:
    """Return the fraction of calcium not buffered by calmodulin, its derivative by C and minus that by kB."""
    _, _, _, k_b, kB = k[4]
    y = k_b + C
    i = 1.0 / (y * y + kB)
    free = y * y * i
    return free, 2.0 * y * i * (1.0 - free), free * i


@inlined
def stiffness(k: Groups, C: float, B: float) -> float:
    """Return the relaxation rate of calcium by troponin, exchanger and pumps: about -dC'/dC, never negative."""
    _, exchanger, _, g_S, K_S, g_p, K_p, _ = k[3]
    i, j = inverses(K_S + C * C, K_p + C)
    return (k[4][2] * B + exchanger + g_S * (2.0 * C * K_S * i * i) + g_p * (K_p * j * j)) * unbuffered(k, C)[0]


@inlined
def slopes(k: Groups, x: Numbers, log: float, g: float) -> Numbers:
    """Return the slopes of the state for C, S, z - g z' and B - g B' in x; ``log`` is the logarithm of C.

    With g = 0 these are the slopes at x. With g > 0 this is an implicit step for z and B.

    Returns
    -------
    tuple of float
        The six slopes.
    """
    C, S, z1, z2, z3, B = x
    made, k_m, k_p, _, _ = k[4]
    shares, rates, _ = channels(k, C, S)
    z, z_slopes, _ = units(rates, k[1][7], (z1, z2, z3), g)
    rate = k_m + k_p * C
    freed = made - rate * ((B + g * made) / (1.0 + g * rate))
    entered, released, _ = currents(k, C, S, z, shares, log)
    return (entered + freed) * unbuffered(k, C)[0], -RATIO * released, z_slopes[0], z_slopes[1], z_slopes[2], freed
