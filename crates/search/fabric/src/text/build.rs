//! Queries for the index, from what readers ask.

use std::ops::Bound;

use tantivy::Term;
use tantivy::query::{
    AllQuery, BooleanQuery, BoostQuery, ConstScoreQuery, DisjunctionMaxQuery, EmptyQuery, FuzzyTermQuery,
    Occur, PhrasePrefixQuery, PhraseQuery, Query, RangeQuery, TermQuery, TermSetQuery,
};
use tantivy::schema::{Field, IndexRecordOption};

use super::analysis::{PIECE_CHARS, pieces, words};
use super::document::exact_term;
use super::highlight::{Needle, Needles};
use super::layout::{FieldPlan, Kind, Layout, root};
use super::words::{Clause, FUZZINESS_MAX, parse};
use crate::error::QueryError;
use crate::query::literal::{self, Number};
use crate::query::request::{Edge, Filter, Literal, TextQuery};

/// How much a match inside a word counts beside one of the whole word.
const INNER_BOOST: f32 = 0.5;
/// How much the other fields add to the best one's score: a word in two fields beats a word in one.
const TIE_BREAKER: f32 = 0.1;
/// Deepest nesting of a filter: building a query is recursive.
const FILTER_DEPTH_MAX: usize = 32;
/// Conditions of a filter, lists of values counted one by one.
const FILTER_TERMS_MAX: usize = 10_000;

type Boxed = Box<dyn Query>;

/// A column of the index and, in JSON columns, the path in it.
struct Column {
    field: Field,
    path: Option<String>,
}

/// A place where text is looked for.
struct Place<'a> {
    plan: &'a FieldPlan,
    path: String,
    boost: f32,
    words: Column,
    inner: Option<Column>,
}

/// Builds queries for one collection.
pub(crate) struct Builder<'a> {
    pub(crate) layout: &'a Layout,
    /// JSON paths with text, as [`super::index::text_paths`] gives them.
    pub(crate) text_paths: &'a std::collections::BTreeSet<String>,
}

impl Column {
    fn term(&self, text: &str) -> Term {
        match &self.path {
            None => Term::from_field_text(self.field, text),
            Some(path) => {
                let mut term = Term::from_field_json_path(self.field, path, true);
                term.append_type_and_str(text);
                term
            }
        }
    }

    fn json(field: Field, plan: &FieldPlan, path: &str) -> Self {
        Self { field, path: Some(json_path(plan, path)) }
    }
}

/// The path of a JSON member inside the shared JSON columns.
pub(crate) fn json_path(plan: &FieldPlan, path: &str) -> String {
    let path = path.replace('\\', "\\\\");
    if path.is_empty() { root(plan.id) } else { format!("{}.{path}", plan.id) }
}

impl<'a> Builder<'a> {
    /// The query of a text, and what to highlight in its hits.
    pub(crate) fn text(&self, query: &TextQuery) -> Result<(Boxed, Needles), QueryError> {
        let mut needles = Needles::default();
        let mut parts: Vec<(Occur, Boxed)> = Vec::new();
        for clause in self.clauses(query) {
            let places = self.places(query, &clause)?;
            let alternatives: Vec<Boxed> = places.iter().filter_map(|place| place.query(&clause)).collect();
            if !clause.negated {
                places
                    .iter()
                    .for_each(|place| needles.add(&place.plan.name, &place.path, Needle::of(&clause)));
            }
            let occur = match (clause.negated, query.any) {
                (true, _) => Occur::MustNot,
                (false, true) => Occur::Should,
                (false, false) => Occur::Must,
            };
            if alternatives.is_empty() && words(&clause.text).is_empty() {
                continue;
            }
            parts.push((occur, Box::new(DisjunctionMaxQuery::with_tie_breaker(alternatives, TIE_BREAKER))));
        }
        if parts.is_empty() {
            return Ok((Box::new(EmptyQuery), needles));
        }
        if parts.iter().all(|(occur, _)| *occur == Occur::MustNot) {
            parts.push((Occur::Must, Box::new(ConstScoreQuery::new(Box::new(AllQuery), 1.0))));
        }
        Ok((Box::new(BooleanQuery::new(parts)), needles))
    }

    fn clauses(&self, query: &TextQuery) -> Vec<Clause> {
        let mut clauses = if query.phrase {
            vec![Clause { text: query.text.clone(), phrase: true, ..Clause::default() }]
        } else {
            parse(&query.text, |name| {
                self.layout.resolve(name).is_some_and(|(plan, _)| plan.analysis.is_some())
            })
        };
        for clause in &mut clauses {
            clause.fuzziness = clause.fuzziness.max(query.fuzziness).min(FUZZINESS_MAX);
        }
        if let Some(last) = clauses.last_mut().filter(|last| !last.negated && query.prefix) {
            last.prefix = true;
        }
        clauses
    }

    fn places(&self, query: &TextQuery, clause: &Clause) -> Result<Vec<Place<'a>>, QueryError> {
        if let Some(field) = &clause.field {
            return self.places_of(field, 1.0);
        }
        if !query.fields.is_empty() {
            let places = query.fields.iter().map(|field| self.places_of(&field.field, field.boost));
            return Ok(places.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect());
        }
        let all = self.layout.fields.iter().filter(|plan| plan.analysis.is_some());
        Ok(all.flat_map(|plan| self.places_below(plan, "", 1.0)).collect())
    }

    fn places_of(&self, address: &str, boost: f32) -> Result<Vec<Place<'a>>, QueryError> {
        let (plan, path) = self.resolve(address, "text.fields")?;
        if plan.analysis.is_none() {
            return Err(QueryError::invalid("text.fields", format!("{address:?} is not a text field")));
        }
        Ok(self.places_below(plan, path, boost))
    }

    /// The places of a field: itself, or for JSON every known path with text at or below `path`.
    fn places_below(&self, plan: &'a FieldPlan, path: &str, boost: f32) -> Vec<Place<'a>> {
        if plan.kind != Kind::Json {
            let words = plan.words.map(|field| Column { field, path: None });
            let inner = plan.inner.map(|field| Column { field, path: None });
            let place = words.map(|words| Place { plan, path: String::new(), boost, words, inner });
            return place.into_iter().collect();
        }
        let start = if path.is_empty() { root(plan.id) } else { format!("{}.{path}", plan.id) };
        let below = format!("{start}.");
        let known = self.text_paths.iter().filter(|known| **known == start || known.starts_with(&below));
        known.map(|known| self.json_place(plan, known, boost)).collect()
    }

    fn json_place(&self, plan: &'a FieldPlan, known: &str, boost: f32) -> Place<'a> {
        let path = known.split_once('.').map_or("", |(_, path)| path).to_owned();
        let words = Column::json(self.layout.json_words, plan, &path);
        let has_inner = plan.analysis.as_ref().is_some_and(|analysis| analysis.has_inner(&path));
        let inner = has_inner.then(|| Column::json(self.layout.json_inner, plan, &path));
        Place { plan, path, boost, words, inner }
    }

    fn resolve<'p>(&self, address: &'p str, part: &str) -> Result<(&'a FieldPlan, &'p str), QueryError> {
        let unknown = || QueryError::invalid(part, format!("there is no field {address:?}"));
        self.layout.resolve(address).ok_or_else(unknown)
    }

    /// The query of a filter.
    pub(crate) fn filter(&self, filter: &Filter) -> Result<Boxed, QueryError> {
        self.filter_within(filter, 0, &mut 0)
    }

    fn filter_within(&self, filter: &Filter, depth: usize, terms: &mut usize) -> Result<Boxed, QueryError> {
        if depth > FILTER_DEPTH_MAX {
            return Err(QueryError::Limit { field: "filter depth", value: depth, limit: FILTER_DEPTH_MAX });
        }
        *terms += match filter {
            Filter::In { values, .. } => values.len(),
            Filter::Ids(ids) => ids.len(),
            _ => 1,
        };
        if *terms > FILTER_TERMS_MAX {
            return Err(QueryError::Limit { field: "filter terms", value: *terms, limit: FILTER_TERMS_MAX });
        }
        let mut all = |filters: &[Filter], occur| {
            let parts = filters.iter().map(|part| Ok((occur, self.filter_within(part, depth + 1, terms)?)));
            parts.collect::<Result<Vec<_>, QueryError>>()
        };
        Ok(match filter {
            Filter::And(parts) if parts.is_empty() => Box::new(AllQuery),
            Filter::And(parts) => Box::new(BooleanQuery::new(all(parts, Occur::Must)?)),
            Filter::Or(parts) if parts.is_empty() => Box::new(EmptyQuery),
            Filter::Or(parts) => Box::new(BooleanQuery::new(all(parts, Occur::Should)?)),
            Filter::Not(part) => {
                let part = self.filter_within(part, depth + 1, terms)?;
                Box::new(BooleanQuery::new(vec![(Occur::Must, Box::new(AllQuery)), (Occur::MustNot, part)]))
            }
            Filter::Eq { field, value } => self.equal(field, value)?,
            Filter::In { field, values } => {
                let any = values.iter().map(|value| Ok((Occur::Should, self.equal(field, value)?)));
                Box::new(BooleanQuery::new(any.collect::<Result<_, QueryError>>()?))
            }
            Filter::Range { field, from, to } => self.range(field, from.as_ref(), to.as_ref())?,
            Filter::Exists { field } => {
                let (plan, path) = self.resolve(field, "filter.exists")?;
                let name = if path.is_empty() { root(plan.id) } else { format!("{}.{path}", plan.id) };
                term_query(Term::from_field_text(self.layout.has, &name))
            }
            Filter::Match { field, text } => self.text(&TextQuery::new(text).within(field))?.0,
            Filter::Ids(ids) => self.ids(ids),
        })
    }

    /// Documents with one of these ids.
    pub(crate) fn ids(&self, ids: &[u64]) -> Boxed {
        Box::new(TermSetQuery::new(ids.iter().map(|id| Term::from_field_u64(self.layout.id, *id))))
    }

    fn equal(&self, address: &str, value: &Literal) -> Result<Boxed, QueryError> {
        let (plan, path) = self.resolve(address, "filter")?;
        let mistyped = |detail| QueryError::invalid(format!("filter on {address:?}"), detail);
        if plan.kind == Kind::Json {
            return Ok(match literal::json(value) {
                literal::Json::Text(text) => {
                    term_query(Column::json(self.layout.json_exact, plan, path).term(&exact_term(&text)))
                }
                literal::Json::Bool(truth) => {
                    let mut term =
                        Term::from_field_json_path(self.layout.json_exact, &json_path(plan, path), true);
                    term.append_type_and_fast_value(truth);
                    term_query(term)
                }
                literal::Json::Number(number) => {
                    let bound = Bound::Included(self.json_number(plan, path, number));
                    Box::new(RangeQuery::new(bound.clone(), bound))
                }
            });
        }
        if let Some(field) = plan.number {
            let key = literal::number_key(plan.kind, value).map_err(mistyped)?;
            return Ok(match key {
                Some(key) => term_query(Term::from_field_u64(field, key)),
                None => Box::new(EmptyQuery),
            });
        }
        let Some(field) = plan.exact else { return Err(mistyped("a vector cannot be compared".to_owned())) };
        let text = literal::exact_key(plan.kind, value).map_err(mistyped)?;
        Ok(term_query(Term::from_field_text(field, &text)))
    }

    fn range(&self, address: &str, from: Option<&Edge>, to: Option<&Edge>) -> Result<Boxed, QueryError> {
        let (plan, path) = self.resolve(address, "filter.range")?;
        let mistyped = |detail| QueryError::invalid(format!("filter.range on {address:?}"), detail);
        if from.is_none() && to.is_none() {
            return Err(mistyped("at least one bound is needed".to_owned()));
        }
        let (low, high) = if plan.kind == Kind::Json {
            (self.json_bound(plan, path, from), self.json_bound(plan, path, to))
        } else if let Some(field) = plan.number {
            let bounds = literal::number_bounds(plan.kind, from, to).map_err(mistyped)?;
            let Some((low, high)) = bounds else { return Ok(Box::new(EmptyQuery)) };
            let term = |key| Term::from_field_u64(field, key);
            (Bound::Included(term(low)), Bound::Included(term(high)))
        } else if let Some(field) = plan.exact {
            let bound = |edge: Option<&Edge>| -> Result<Bound<Term>, QueryError> {
                let Some(edge) = edge else { return Ok(Bound::Unbounded) };
                let text = literal::exact_key(plan.kind, &edge.value).map_err(mistyped)?;
                Ok(bound_of(edge, Term::from_field_text(field, &text)))
            };
            (bound(from)?, bound(to)?)
        } else {
            return Err(mistyped("a vector has no order".to_owned()));
        };
        Ok(Box::new(RangeQuery::new(low, high)))
    }

    fn json_bound(&self, plan: &FieldPlan, path: &str, edge: Option<&Edge>) -> Bound<Term> {
        let Some(edge) = edge else { return Bound::Unbounded };
        let term = match literal::json(&edge.value) {
            literal::Json::Text(text) => {
                Column::json(self.layout.json_exact, plan, path).term(&exact_term(&text))
            }
            literal::Json::Bool(truth) => self.json_number(plan, path, Number::UInt(u64::from(truth))),
            literal::Json::Number(number) => self.json_number(plan, path, number),
        };
        bound_of(edge, term)
    }

    fn json_number(&self, plan: &FieldPlan, path: &str, number: Number) -> Term {
        let mut term = Term::from_field_json_path(self.layout.json_exact, &json_path(plan, path), true);
        match number {
            Number::UInt(n) => term.append_type_and_fast_value(n),
            Number::Int(n) => term.append_type_and_fast_value(n),
            Number::Float(x) => term.append_type_and_fast_value(x),
        }
        term
    }
}

fn bound_of(edge: &Edge, term: Term) -> Bound<Term> {
    if edge.inclusive { Bound::Included(term) } else { Bound::Excluded(term) }
}

fn term_query(term: Term) -> Boxed {
    Box::new(TermQuery::new(term, IndexRecordOption::Basic))
}

impl Place<'_> {
    /// The query of a clause in this place; `None` if the clause has nothing to look for here.
    fn query(&self, clause: &Clause) -> Option<Boxed> {
        let mut parts: Vec<Boxed> = Vec::new();
        if self.plan.analysis.as_ref().is_some_and(|analysis| analysis.keyword && self.path.is_empty()) {
            let whole = clause.text.to_lowercase();
            parts.push(self.word(&whole, clause));
        } else {
            let tokens: Vec<String> = words(&clause.text).into_iter().map(|word| word.text).collect();
            parts.extend(match tokens.as_slice() {
                [] => None,
                [word] => Some(self.word(word, clause)),
                many => Some(self.sequence(many, clause)),
            });
            if let ([word], Some(inner)) = (tokens.as_slice(), &self.inner) {
                parts.extend(inside(word, inner));
            }
        }
        if parts.is_empty() {
            return None;
        }
        let query: Boxed = Box::new(DisjunctionMaxQuery::new(parts));
        Some(if self.boost == 1.0 { query } else { Box::new(BoostQuery::new(query, self.boost)) })
    }

    fn word(&self, word: &str, clause: &Clause) -> Boxed {
        let term = self.words.term(word);
        match (clause.fuzziness, clause.prefix) {
            (0, false) => Box::new(TermQuery::new(term, IndexRecordOption::WithFreqs)),
            (edits, true) => {
                // The word itself, where it is there, counts more than what only begins with it.
                let whole = TermQuery::new(term.clone(), IndexRecordOption::WithFreqs);
                let longer = FuzzyTermQuery::new_prefix(term, edits, true);
                Box::new(DisjunctionMaxQuery::new(vec![Box::new(whole), Box::new(longer)]))
            }
            (edits, false) => Box::new(FuzzyTermQuery::new(term, edits, true)),
        }
    }

    fn sequence(&self, tokens: &[String], clause: &Clause) -> Boxed {
        let terms = tokens.iter().map(|token| self.words.term(token)).collect();
        if clause.prefix {
            Box::new(PhrasePrefixQuery::new(terms))
        } else {
            Box::new(PhraseQuery::new(terms))
        }
    }
}

/// The query of a part of a word: its pieces, one after the other. Parts shorter than a piece are only found
/// as whole words.
fn inside(word: &str, inner: &Column) -> Option<Boxed> {
    if word.chars().count() < PIECE_CHARS {
        return None;
    }
    let terms: Vec<Term> = pieces(word).into_iter().map(|piece| inner.term(piece)).collect();
    let query: Boxed = match terms.as_slice() {
        [term] => Box::new(TermQuery::new(term.clone(), IndexRecordOption::WithFreqs)),
        _ => Box::new(PhraseQuery::new(terms)),
    };
    Some(Box::new(BoostQuery::new(query, INNER_BOOST)))
}
