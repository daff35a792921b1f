"""What bounds cite: papers, each written once, and the statements in them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Paper:
    """A paper; called with the number of a statement it gives the citation of that statement."""

    key: str
    authors: str
    title: str
    year: int
    where: str

    def __call__(self, statement: str) -> Citation:
        """Return the citation of one of its statements."""
        return Citation(self, statement)


@dataclass(frozen=True)
class Citation:
    """Where a statement stands: paper, version and number."""

    paper: Paper
    statement: str

    def short(self) -> str:
        """Return one line for a table; a proof of this project's own is named by its page."""
        if self.paper == this_library:
            return self.statement
        first_author = self.paper.authors.split(" and ")[0].split(",")[0]
        return f"{first_author} {self.paper.year}, {self.statement}"

    def bibtex(self) -> str:
        """Return a BibTeX entry."""
        fields = {
            "author": self.paper.authors,
            "title": self.paper.title,
            "year": str(self.paper.year),
            "howpublished": self.paper.where,
            "note": self.statement,
        }
        body = ",\n".join(f"  {name} = {{{text}}}" for name, text in fields.items())
        return f"@misc{{{self.paper.key},\n{body}\n}}"


dwork_roth = Paper(
    "dwork2014algorithmic",
    "Dwork, Cynthia and Roth, Aaron",
    "The Algorithmic Foundations of Differential Privacy",
    2014,
    "Foundations and Trends in Theoretical Computer Science 9(3-4)",
)
mironov_sampled = Paper(
    "mironov2019renyi",
    "Mironov, Ilya and Talwar, Kunal and Zhang, Li",
    "Rényi Differential Privacy of the Sampled Gaussian Mechanism",
    2019,
    "arXiv:1908.10530v1",
)
dong_roth_su = Paper(
    "dong2022gaussian",
    "Dong, Jinshuo and Roth, Aaron and Su, Weijie J.",
    "Gaussian Differential Privacy",
    2022,
    "JRSS B 84(1), arXiv:1905.02383v3",
)
connect_the_dots = Paper(
    "doroshenko2022connect",
    "Doroshenko, Vadym and Ghazi, Badih and Kamath, Pritish and Kumar, Ravi and Manurangsi, Pasin",
    "Connect the Dots: Tighter Discrete Approximations of Privacy Loss Distributions",
    2022,
    "PoPETs 2022(4), arXiv:2207.04380v1",
)
altschuler_talwar = Paper(
    "altschuler2022privacy",
    "Altschuler, Jason M. and Talwar, Kunal",
    "Privacy of Noisy Stochastic Gradient Descent: More Iterations without More Privacy Loss",
    2022,
    "NeurIPS 2022, arXiv:2205.13710",
)
shifted_interpolation = Paper(
    "bok2024shifted",
    "Bok, Jinho and Su, Weijie J. and Altschuler, Jason M.",
    "Shifted Interpolation for Differential Privacy",
    2024,
    "ICML 2024, arXiv:2403.00278",
)
asoodeh_diaz_calmon = Paper(
    "asoodeh2020amplification",
    "Asoodeh, Shahab and Diaz, Mario and Calmon, Flavio P.",
    "Privacy Amplification of Iterative Algorithms via Contraction Coefficients",
    2020,
    "ISIT 2020, arXiv:2001.06546",
)
asoodeh_online = Paper(
    "asoodeh2020online",
    "Asoodeh, Shahab and Diaz, Mario and Calmon, Flavio P.",
    "Privacy Analysis of Online Learning Algorithms via Contraction Coefficients",
    2020,
    "arXiv:2012.11035",
)
asoodeh_conversion = Paper(
    "asoodeh2021three",
    "Asoodeh, Shahab and Liao, Jiachun and Calmon, Flavio P. and Kosut, Oliver and Sankar, Lalitha",
    "Three Variants of Differential Privacy: Lossless Conversion and Applications",
    2021,
    "IEEE Journal on Selected Areas in Information Theory 2(1), arXiv:2008.06529",
)
abadi = Paper(
    "abadi2016deep",
    "Abadi, Martín and Chu, Andy and Goodfellow, Ian and McMahan, H. Brendan and Mironov, Ilya"
    " and Talwar, Kunal and Zhang, Li",
    "Deep Learning with Differential Privacy",
    2016,
    "CCS 2016, arXiv:1607.00133",
)
feldman = Paper(
    "feldman2018iteration",
    "Feldman, Vitaly and Mironov, Ilya and Talwar, Kunal and Thakurta, Abhradeep",
    "Privacy Amplification by Iteration",
    2018,
    "FOCS 2018, arXiv:1808.06651",
)
balle_mixing = Paper(
    "balle2019mixing",
    "Balle, Borja and Barthe, Gilles and Gaboardi, Marco and Geumlek, Joseph",
    "Privacy Amplification by Mixing and Diffusion Mechanisms",
    2019,
    "NeurIPS 2019, arXiv:1905.12264",
)
asoodeh_diaz = Paper(
    "asoodeh2023nonconvex",
    "Asoodeh, Shahab and Diaz, Mario",
    "Privacy Loss of Noisy Stochastic Gradient Descent Might Converge Even for Non-Convex Losses",
    2023,
    "arXiv:2305.09903",
)
bravo = Paper(
    "bravo2025mixing",
    "Bravo, Mario and Flores-Mella, Juan Pablo and Guzmán, Cristóbal",
    "Mixing Times and Privacy Analysis for the Projected Langevin Algorithm under a Modulus"
    " of Continuity",
    2025,
    "arXiv:2501.04134",
)
# Proofs that are written in this project's docs/theory.
this_library = Paper(
    "dplateau",
    "The dplateau developers",
    "dplateau: privacy of noisy gradient descent with a hidden state",
    2026,
    "docs/theory of this project",
)
