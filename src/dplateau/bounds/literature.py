"""The papers that bounds cite, written once."""

from __future__ import annotations

from dplateau.bounds.base import Citation


def dwork_roth(statement: str) -> Citation:
    """Return a citation of Dwork and Roth's monograph."""
    return Citation(
        "dwork2014algorithmic",
        "Dwork, Cynthia and Roth, Aaron",
        "The Algorithmic Foundations of Differential Privacy",
        2014,
        "Foundations and Trends in Theoretical Computer Science 9(3-4)",
        statement,
    )


def mironov_sampled(statement: str) -> Citation:
    """Return a citation of the sampled Gaussian mechanism's Rényi analysis."""
    return Citation(
        "mironov2019renyi",
        "Mironov, Ilya and Talwar, Kunal and Zhang, Li",
        "Rényi Differential Privacy of the Sampled Gaussian Mechanism",
        2019,
        "arXiv:1908.10530v1",
        statement,
    )


def dong_roth_su(statement: str) -> Citation:
    """Return a citation of Gaussian differential privacy."""
    return Citation(
        "dong2022gaussian",
        "Dong, Jinshuo and Roth, Aaron and Su, Weijie J.",
        "Gaussian Differential Privacy",
        2022,
        "JRSS B 84(1), arXiv:1905.02383v3",
        statement,
    )


def connect_the_dots(statement: str) -> Citation:
    """Return a citation of pessimistic privacy-loss discretisation."""
    return Citation(
        "doroshenko2022connect",
        "Doroshenko, Vadym and Ghazi, Badih and Kamath, Pritish and Kumar, Ravi"
        " and Manurangsi, Pasin",
        "Connect the Dots: Tighter Discrete Approximations of Privacy Loss Distributions",
        2022,
        "PoPETs 2022(4), arXiv:2207.04380v1",
        statement,
    )


def altschuler_talwar(statement: str) -> Citation:
    """Return a citation of the plateau of projected noisy SGD."""
    return Citation(
        "altschuler2022privacy",
        "Altschuler, Jason M. and Talwar, Kunal",
        "Privacy of Noisy Stochastic Gradient Descent: More Iterations without More Privacy Loss",
        2022,
        "NeurIPS 2022, arXiv:2205.13710",
        statement,
    )


def shifted_interpolation(statement: str) -> Citation:
    """Return a citation of shifted interpolation."""
    return Citation(
        "bok2024shifted",
        "Bok, Jinho and Su, Weijie J. and Altschuler, Jason M.",
        "Shifted Interpolation for Differential Privacy",
        2024,
        "ICML 2024, arXiv:2403.00278",
        statement,
    )


def asoodeh_diaz_calmon(statement: str) -> Citation:
    """Return a citation of the contraction analysis of online noisy SGD."""
    return Citation(
        "asoodeh2020amplification",
        "Asoodeh, Shahab and Diaz, Mario and Calmon, Flavio P.",
        "Privacy Amplification of Iterative Algorithms via Contraction Coefficients",
        2020,
        "ISIT 2020, arXiv:2001.06546",
        statement,
    )


def asoodeh_online(statement: str) -> Citation:
    """Return a citation of the contraction analysis of online learning, the longer version."""
    return Citation(
        "asoodeh2020online",
        "Asoodeh, Shahab and Diaz, Mario and Calmon, Flavio P.",
        "Privacy Analysis of Online Learning Algorithms via Contraction Coefficients",
        2020,
        "arXiv:2012.11035",
        statement,
    )


def asoodeh_conversion(statement: str) -> Citation:
    """Return a citation of the lossless conversion of Rényi to approximate privacy."""
    return Citation(
        "asoodeh2021three",
        "Asoodeh, Shahab and Liao, Jiachun and Calmon, Flavio P. and Kosut, Oliver and Sankar, Lalitha",
        "Three Variants of Differential Privacy: Lossless Conversion and Applications",
        2021,
        "IEEE Journal on Selected Areas in Information Theory 2(1), arXiv:2008.06529",
        statement,
    )


def abadi(statement: str) -> Citation:
    """Return a citation of the moments accountant."""
    return Citation(
        "abadi2016deep",
        "Abadi, Martin and Chu, Andy and Goodfellow, Ian and McMahan, H. Brendan and others",
        "Deep Learning with Differential Privacy",
        2016,
        "ACM CCS, arXiv:1607.00133",
        statement,
    )


def feldman(statement: str) -> Citation:
    """Return a citation of privacy amplification by iteration."""
    return Citation(
        "feldman2018iteration",
        "Feldman, Vitaly and Mironov, Ilya and Talwar, Kunal and Thakurta, Abhradeep",
        "Privacy Amplification by Iteration",
        2018,
        "FOCS 2018, arXiv:1808.06651",
        statement,
    )


def balle_mixing(statement: str) -> Citation:
    """Return a citation of privacy amplification by mixing and diffusion."""
    return Citation(
        "balle2019mixing",
        "Balle, Borja and Barthe, Gilles and Gaboardi, Marco and Geumlek, Joseph",
        "Privacy Amplification by Mixing and Diffusion Mechanisms",
        2019,
        "NeurIPS 2019, arXiv:1905.12264",
        statement,
    )


def asoodeh_diaz(statement: str) -> Citation:
    """Return a citation of the convergence of the privacy loss without convexity."""
    return Citation(
        "asoodeh2023nonconvex",
        "Asoodeh, Shahab and Diaz, Mario",
        "Privacy Loss of Noisy Stochastic Gradient Descent Might Converge Even for Non-Convex"
        " Losses",
        2023,
        "arXiv:2305.09903",
        statement,
    )


def bravo(statement: str) -> Citation:
    """Return a citation of the amplification by iteration under a modulus of continuity."""
    return Citation(
        "bravo2025mixing",
        "Bravo, Mario and Flores-Mella, Juan Pablo and Guzmán, Cristóbal",
        "Mixing Times and Privacy Analysis for the Projected Langevin Algorithm under a Modulus"
        " of Continuity",
        2025,
        "arXiv:2501.04134",
        statement,
    )


def this_library(statement: str) -> Citation:
    """Return a citation of a proof that is written in this project's docs/theory."""
    return Citation(
        "dplateau",
        "The dplateau developers",
        "dplateau: privacy of noisy gradient descent with a hidden state",
        2026,
        "docs/theory of this project",
        statement,
    )
