"""Fitted models as ONNX graphs, which serve without this library.

    from dplateau.onnx import to_onnx
    onnx.save(to_onnx(model), "model.onnx")

The graph does to a row what ``predict`` does: columns are cut to their public bounds, the row is
scaled down to its public norm, rounds of whitening shorten it, and the noisy weights score it.
Everything in it was already in the fitted model, so exporting tells nothing new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dplateau.errors import InvalidInput, MissingExtra
from dplateau.estimators import PrivateLogisticRegression
from dplateau.estimators.models import PrivateClassifier, PrivateModel, PrivateRegressor
from dplateau.estimators.probabilities import Widening
from dplateau.estimators.rows import RowMap
from dplateau.ground import VERSION
from dplateau.ground.types import FloatArray

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["to_onnx"]

# Old enough for every runtime in use; newer operators are not needed.
OPSET, FORMAT = 17, 8


class _Graph:
    """Nodes under construction: every call adds one and returns the name of its result."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any) -> str:
        from onnx import numpy_helper

        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(self, operator: str, *inputs: Any, name: str | None = None, **attributes: Any) -> str:
        """Apply an operator; arrays and numbers among its inputs become constants."""
        from onnx import helper

        names = [one if isinstance(one, str) else self.constant(one) for one in inputs]
        result = name or f"value_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, names, [result], **attributes))
        return result


def to_onnx(model: PrivateModel) -> ModelProto:
    """Return a fitted private model as an ONNX graph.

    Its input ``rows`` is a matrix of doubles. A classifier has the outputs ``label``, ``scores``
    (as ``decision_function``, with a column for each score) and, for logistic regression,
    ``probabilities``; a regressor has ``prediction``. The claim travels in the metadata.
    """
    try:
        from onnx import TensorProto, checker, helper
    except ImportError as error:
        raise MissingExtra("to_onnx needs onnx: pip install 'dplateau[onnx]'") from error
    if not isinstance(model, PrivateClassifier | PrivateRegressor):
        raise InvalidInput(
            f"to_onnx takes a fitted private model of this library; got {type(model).__name__} "
            "(of a pipeline, take the last step: what encodes the columns stays with you)"
        )
    if not hasattr(model, "row_map_"):
        raise InvalidInput(f"this {type(model).__name__} is not fitted; call fit first")
    graph, width = _Graph(), model.n_features_in_
    coef, intercept = model.by_score()
    scores, norms = _scores(graph, model.row_map_, coef, intercept)
    outputs = {}
    if isinstance(model, PrivateClassifier):
        graph.add("Identity", scores, name="scores")
        outputs["scores"] = (TensorProto.DOUBLE, [None, len(coef)])
        deciding = scores
        if isinstance(model, PrivateLogisticRegression):
            odds = _log_odds(graph, scores, norms, len(coef), model.widening_)
            _probabilities(graph, odds, len(coef))
            outputs["probabilities"] = (TensorProto.DOUBLE, [None, len(model.classes_)])
            if (shift := model.decision_shift_) is not None:
                moved = shift[None] if len(coef) > 1 else np.array([shift[1] - shift[0]])
                deciding = graph.add("Add", odds, moved)
        classes = _plain(model.classes_)
        _label(graph, deciding, len(coef), classes)
        text = classes.dtype == object
        outputs["label"] = (TensorProto.STRING if text else TensorProto.INT64, [None])
    else:
        limits = model.target_range
        prediction = graph.add("Add", scores, np.array([limits.center]))
        prediction = graph.add("Min", graph.add("Max", prediction, [limits.low]), [limits.high])
        graph.add("Reshape", prediction, np.array([-1]), name="prediction")
        outputs["prediction"] = (TensorProto.DOUBLE, [None])
    whole = helper.make_model(
        helper.make_graph(
            graph.nodes,
            type(model).__name__,
            [helper.make_tensor_value_info("rows", TensorProto.DOUBLE, [None, width])],
            [helper.make_tensor_value_info(name, *kind) for name, kind in outputs.items()],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=FORMAT,
        producer_name="dplateau",
        producer_version=VERSION,
    )
    claimed = getattr(model, "certificate_", None)
    if claimed is not None:
        helper.set_model_props(whole, {"privacy": claimed.headline})
    checker.check_model(whole)
    return whole


def _scores(
    graph: _Graph, rows: RowMap, coef: FloatArray, intercept: FloatArray
) -> tuple[str, str]:
    """Score rows as :meth:`RowMap.scores` does, and measure them as :meth:`RowMap.norms` does."""
    cut = mapped = "rows"
    if rows.columns is not None:
        cut = graph.add("Min", graph.add("Max", cut, rows.columns.low), rows.columns.high)
        mapped = graph.add("Div", graph.add("Sub", cut, rows.center), rows.half)
    shares = _shares(graph, mapped, rows.data_norm)
    scaled = graph.add("Mul", cut, shares)
    at_centre = np.sum(coef * rows.center, axis=1)
    scores = graph.add("MatMul", scaled, np.ascontiguousarray(coef.T))
    rest = graph.add("Mul", graph.add("Sub", np.ones(1), shares), at_centre[None])
    scores = graph.add("Add", graph.add("Add", scores, rest), intercept)
    turned = graph.add("Mul", mapped, shares)
    if not rows.whitening:
        squares = graph.add("ReduceSumSquare", turned, axes=[1], keepdims=1)
        whole = graph.add("Add", squares, np.array([rows.intercept**2]))
        return scores, graph.add("Sqrt", whole)
    if rows.intercept:
        ones = graph.add("Div", shares, shares)
        turned = graph.add("Concat", turned, graph.add("Mul", ones, [rows.intercept]), axis=1)
    for one in rows.whitening:
        turned = graph.add("MatMul", turned, one.matrix)
        each = _shares(graph, turned, 1.0)
        turned, scores = graph.add("Mul", turned, each), graph.add("Mul", scores, each)
    norms = graph.add("ReduceL2", turned, axes=[1], keepdims=1)
    if rows.bend is None:
        return scores, norms
    before = _shares(graph, turned, rows.bend)
    parts = graph.add("Concat", before, graph.add("Sub", np.ones(1), before), axis=1)
    bent = graph.add("ReduceSum", graph.add("Mul", scores, parts), np.array([1]), keepdims=1)
    return bent, norms


def _shares(graph: _Graph, rows: str, norm: float) -> str:
    """Return norm / max(|x|, norm) for every row, as a column."""
    lengths = graph.add("ReduceL2", rows, axes=[1], keepdims=1)
    return graph.add("Div", np.array([norm]), graph.add("Max", lengths, np.array([norm])))


def _log_odds(graph: _Graph, scores: str, norms: str, count: int, by: Widening) -> str:
    """Do what :class:`Widening` does to scores."""
    squares = graph.add("Mul", norms, norms)
    noise = (2 if count > 1 else 1) * np.pi / 8 * by.variance
    width = graph.add("Mul", squares, np.array([noise]))
    width = graph.add("Sqrt", graph.add("Add", width, np.array([by.learned**2])))
    if count > 1:
        return graph.add("Div", scores, graph.add("Max", width, np.ones(1)))
    size = rest = graph.add("Abs", scores)
    if np.isfinite(by.clip):
        # Rows without any length are cut nowhere.
        length = graph.add("Max", norms, np.array([1e-300]))
        cut = graph.add("Max", graph.add("Div", np.array([by.clip]), length), np.array([0.5]))
        above = graph.add("Log", graph.add("Min", cut, np.ones(1)))
        one_more = graph.add("Add", np.ones(1), graph.add("Exp", graph.add("Neg", size)))
        below = graph.add("Log", one_more)
        off = graph.add("Min", graph.add("Add", above, below), np.zeros(1))
        rest = graph.add("Add", size, off)
    log_odds = graph.add("Min", size, graph.add("Div", rest, width))
    return graph.add("Mul", graph.add("Sign", scores), log_odds)


def _probabilities(graph: _Graph, scores: str, count: int) -> None:
    if count > 1:
        graph.add("Softmax", scores, axis=1, name="probabilities")
        return
    sides = [graph.add("Sigmoid", graph.add("Neg", scores)), graph.add("Sigmoid", scores)]
    graph.add("Concat", *sides, axis=1, name="probabilities")


def _label(graph: _Graph, scores: str, count: int, classes: Any) -> None:
    if count > 1:
        place = graph.add("ArgMax", scores, axis=1, keepdims=0)
    else:
        above = graph.add("Cast", graph.add("Greater", scores, np.zeros(1)), to=7)  # int64
        place = graph.add("Reshape", above, np.array([-1]))
    graph.add("Gather", classes, place, axis=0, name="label")


def _plain(classes: Any) -> Any:
    """Return classes as whole numbers if they are, else as texts."""
    labels = np.asarray(classes)
    if labels.dtype.kind in "iub":
        return labels.astype(np.int64)
    if labels.dtype.kind == "f" and np.array_equal(labels, np.round(labels)):
        return labels.astype(np.int64)
    return np.array([str(one) for one in labels], dtype=object)
