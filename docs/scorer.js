// Search: a title that has the words comes first, then the glossary, a name of the API, other text.
var Scorer = {
  score: ([docname, title, anchor, description, score]) =>
    docname === "glossary" ? score + 8 : score,
  objNameMatch: 11,
  objPartialMatch: 3,
  objPrio: { 0: 1, 1: 0, 2: -2 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
