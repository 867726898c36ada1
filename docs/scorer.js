// Search: a title that has the words comes before a name of the API, which comes before other text.
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 3,
  objPrio: { 0: 1, 1: 0, 2: -2 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
