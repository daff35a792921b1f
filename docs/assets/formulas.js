// Formulas are written in the proof notes as AsciiMath and stand in elements of class "formula".
window.MathJax = {
  loader: { load: ["input/asciimath", "output/chtml"] },
  asciimath: { delimiters: [["\u27e6", "\u27e7"]] },
  options: { ignoreHtmlClass: "md-container", processHtmlClass: "formula", enableMenu: false },
  startup: { elements: null },
};
