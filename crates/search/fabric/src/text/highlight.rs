//! Which passages of a hit matched. The text is walked as it was when it was indexed, so that highlights
//! agree with matches.

use super::analysis::{Word, words};
use super::words::Clause;
use crate::query::response::{Highlight, Piece};

/// Longest passage shown, in bytes; around the first match.
const PASSAGE_BYTES_MAX: usize = 240;

/// What a clause looks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Needle {
    tokens: Vec<String>,
    prefix: bool,
    fuzziness: u8,
}

/// What was looked for where.
#[derive(Clone, Debug, Default)]
pub(crate) struct Needles {
    places: Vec<(String, String, Vec<Needle>)>,
}

impl Needle {
    pub(crate) fn of(clause: &Clause) -> Self {
        let tokens = words(&clause.text).into_iter().map(|word| word.text).collect();
        Self { tokens, prefix: clause.prefix, fuzziness: clause.fuzziness }
    }

    /// How many words from the start of `at` match; 0 for none.
    fn matches(&self, at: &[Word], inner: bool) -> usize {
        let fits = self.tokens.len() <= at.len() && !self.tokens.is_empty();
        let last = self.tokens.len().saturating_sub(1);
        let all = self.tokens.iter().zip(at).enumerate().all(|(i, (token, word))| {
            let partly = i == last && (self.prefix && word.text.starts_with(token.as_str()));
            let inside = inner && self.tokens.len() == 1 && word.text.contains(token.as_str());
            let nearly = self.fuzziness > 0 && near(token, &word.text, usize::from(self.fuzziness));
            word.text == *token || partly || inside || nearly
        });
        if fits && all { self.tokens.len() } else { 0 }
    }
}

impl Needles {
    /// Notes that a clause is looked for in a field at a path.
    pub(crate) fn add(&mut self, field: &str, path: &str, needle: Needle) {
        match self.places.iter_mut().find(|(f, p, _)| f == field && p == path) {
            Some((_, _, needles)) => needles.push(needle),
            None => self.places.push((field.to_owned(), path.to_owned(), vec![needle])),
        }
    }

    /// The highlights of a document.
    pub(crate) fn highlight(
        &self,
        document: &serde_json::Map<String, serde_json::Value>,
        has_inner: impl Fn(&str, &str) -> bool,
    ) -> Vec<Highlight> {
        let mut highlights = Vec::new();
        for (field, path, needles) in &self.places {
            let Some(root) = document.get(field) else { continue };
            let mut texts = Vec::new();
            strings_at(root, path, &mut texts);
            let inner = has_inner(field, path);
            let name = if path.is_empty() { field.clone() } else { format!("{field}.{path}") };
            let found = texts.into_iter().filter_map(|text| passage(text, needles, inner));
            highlights.extend(found.map(|pieces| Highlight { field: name.clone(), pieces }));
        }
        highlights
    }
}

/// The strings at a path; arrays are looked through.
fn strings_at<'a>(value: &'a serde_json::Value, path: &str, found: &mut Vec<&'a str>) {
    match value {
        serde_json::Value::Array(items) => items.iter().for_each(|item| strings_at(item, path, found)),
        serde_json::Value::String(text) if path.is_empty() => found.push(text),
        serde_json::Value::Object(members) if !path.is_empty() => {
            for (name, member) in members {
                match path.strip_prefix(name.as_str()) {
                    Some("") => strings_at(member, "", found),
                    Some(rest) if rest.starts_with('.') => {
                        strings_at(member, rest.trim_start_matches('.'), found);
                    }
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

/// The text cut at its matches; `None` if there is none.
fn passage(text: &str, needles: &[Needle], inner: bool) -> Option<Vec<Piece>> {
    let words = words(text);
    let mut spans: Vec<std::ops::Range<usize>> = Vec::new();
    let mut rest = words.as_slice();
    while let Some(first) = rest.first() {
        let taken = needles.iter().map(|needle| needle.matches(rest, inner)).max().unwrap_or_default();
        let last = rest.get(taken.saturating_sub(1)).unwrap_or(first);
        if taken > 0 {
            spans.push(first.at.start..last.at.end);
        }
        rest = rest.get(taken.max(1)..).unwrap_or_default();
    }
    let window = window(text, spans.first()?);
    let mut pieces = Vec::new();
    let mut at = window.start;
    for span in spans.iter().filter(|span| span.end <= window.end) {
        push(&mut pieces, text.get(at..span.start), false);
        push(&mut pieces, text.get(span.clone()), true);
        at = span.end;
    }
    push(&mut pieces, text.get(at..window.end), false);
    Some(pieces)
}

fn push(pieces: &mut Vec<Piece>, text: Option<&str>, hit: bool) {
    if let Some(text) = text.filter(|text| !text.is_empty()) {
        pieces.push(Piece { text: text.to_owned(), hit });
    }
}

/// The part of a long text that is shown: a quarter before the first match, the rest after it.
fn window(text: &str, first: &std::ops::Range<usize>) -> std::ops::Range<usize> {
    if text.len() <= PASSAGE_BYTES_MAX {
        return 0..text.len();
    }
    let boundary =
        |from: usize| (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    let start = boundary(first.start.saturating_sub(PASSAGE_BYTES_MAX / 4));
    let end = boundary((start + PASSAGE_BYTES_MAX).max(first.end).min(text.len()));
    start..end
}

/// Whether two words differ by at most `edits` insertions, deletions, substitutions or swaps of neighbours.
fn near(a: &str, b: &str, edits: usize) -> bool {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().abs_diff(b.len()) > edits {
        return false;
    }
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let get = |row: &[usize], at: usize| row.get(at).copied().unwrap_or(usize::MAX - 1);
            let mut best =
                (get(&above, j) + usize::from(x != y)).min(get(&above, j + 1) + 1).min(get(&row, j) + 1);
            let swapped = i > 0 && j > 0 && a.get(i - 1) == Some(y) && b.get(j - 1) == Some(x);
            if swapped {
                best = best.min(get(&before, j - 1) + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut above, row);
    }
    above.last().is_some_and(|distance| *distance <= edits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str, query: &str, inner: bool) -> Vec<(String, bool)> {
        let needles: Vec<Needle> =
            super::super::words::parse(query, |_| false).iter().map(Needle::of).collect();
        let pieces = passage(text, &needles, inner).unwrap_or_default();
        pieces.into_iter().map(|piece| (piece.text, piece.hit)).collect()
    }

    fn pieces(expected: &[(&str, bool)]) -> Vec<(String, bool)> {
        expected.iter().map(|(text, hit)| ((*text).to_owned(), *hit)).collect()
    }

    #[test]
    fn matches_are_cut_out_in_every_mode() {
        assert_eq!(cut("a Cat sat", "cat", false), pieces(&[("a ", false), ("Cat", true), (" sat", false)]));
        assert_eq!(cut("Herzdekoration", "herz", true), pieces(&[("Herzdekoration", true)]));
        assert_eq!(cut("Herzdekoration", "herz", false), pieces(&[]));
        assert_eq!(cut("飛行機離陸", "飛行機", false), pieces(&[("飛行機", true), ("離陸", false)]));
        assert_eq!(cut("grinning face", "gri*", false), pieces(&[("grinning", true), (" face", false)]));
        assert_eq!(cut("red heart", "haert~", false), pieces(&[("red ", false), ("heart", true)]));
        assert_eq!(
            cut("big red heart", "\"red heart\"", false),
            pieces(&[("big ", false), ("red heart", true)])
        );
    }

    #[test]
    fn a_long_text_is_shown_around_its_first_match() {
        let text = format!("{} needle {}", "ä ".repeat(400), "b ".repeat(400));
        let shown = cut(&text, "needle", false);
        assert!(shown.iter().map(|(text, _)| text.len()).sum::<usize>() <= PASSAGE_BYTES_MAX + 4);
        assert_eq!(shown.iter().filter(|(_, hit)| *hit).count(), 1);
    }

    #[test]
    fn edit_distance_counts_a_swap_once() {
        assert!(near("haert", "heart", 1) && near("hert", "heart", 1) && !near("hart", "hurts", 1));
        assert!(near("", "a", 1) && !near("", "ab", 1));
    }
}
