//! The little language of text queries: `word`, `"a phrase"`, `pre*`, `fuzy~1`, `-not`, `field:word`.
//! Anything else is text: no input is an error.

/// One thing a document must, or must not, contain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clause {
    pub(crate) text: String,
    /// The field it is restricted to.
    pub(crate) field: Option<String>,
    pub(crate) negated: bool,
    pub(crate) phrase: bool,
    pub(crate) prefix: bool,
    pub(crate) fuzziness: u8,
}

/// Clauses of a query beyond this are ignored: nobody types so many, and each is looked for in every field.
const CLAUSES_MAX: usize = 64;
/// Most letters a word may differ by; beyond it nearly every short word matches.
pub(crate) const FUZZINESS_MAX: u8 = 2;

/// Reads a query. `is_field` says which names before a colon are fields.
pub(crate) fn parse(text: &str, is_field: impl Fn(&str) -> bool) -> Vec<Clause> {
    let mut clauses = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() && clauses.len() < CLAUSES_MAX {
        let (clause, after) = clause(rest, &is_field);
        rest = after.trim_start();
        clauses.extend(clause);
    }
    clauses
}

fn clause<'a>(text: &'a str, is_field: &impl Fn(&str) -> bool) -> (Option<Clause>, &'a str) {
    let mut clause = Clause::default();
    let mut rest = text;
    if let Some(after) = rest.strip_prefix('-').filter(|after| !after.starts_with(char::is_whitespace)) {
        clause.negated = true;
        rest = after;
    }
    if let Some((name, after)) = rest.split_once(':')
        && is_field(name)
        && !after.is_empty()
    {
        clause.field = Some(name.to_owned());
        rest = after;
    }
    if let Some(quoted) = rest.strip_prefix('"') {
        let (inside, after) = quoted.split_once('"').unwrap_or((quoted, ""));
        clause.text = inside.to_owned();
        clause.phrase = true;
        return (some(clause), after);
    }
    let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
    let (word, after) = rest.split_at(end);
    suffix(&mut clause, word);
    (some(clause), after)
}

fn suffix(clause: &mut Clause, word: &str) {
    let fuzzy = [("~2", 2), ("~1", 1), ("~", 1)];
    if let Some(stem) = word.strip_suffix('*') {
        (clause.text, clause.prefix) = (stem.to_owned(), true);
    } else if let Some((stem, edits)) = fuzzy.iter().find_map(|(s, n)| Some((word.strip_suffix(s)?, *n))) {
        (clause.text, clause.fuzziness) = (stem.to_owned(), edits);
    } else {
        word.clone_into(&mut clause.text);
    }
}

fn some(clause: Clause) -> Option<Clause> {
    (!clause.text.is_empty()).then_some(clause)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Vec<Clause> {
        parse(text, |name| name == "label" || name == "names.de")
    }

    fn word(text: &str) -> Clause {
        Clause { text: text.to_owned(), ..Clause::default() }
    }

    #[test]
    fn every_form_of_the_language_is_read() {
        let found = read("cat -dog \"red heart\" gri* haert~ label:cat -names.de:herz");
        let expected = [
            word("cat"),
            Clause { negated: true, ..word("dog") },
            Clause { phrase: true, ..word("red heart") },
            Clause { prefix: true, ..word("gri") },
            Clause { fuzziness: 1, ..word("haert") },
            Clause { field: Some("label".to_owned()), ..word("cat") },
            Clause { field: Some("names.de".to_owned()), negated: true, ..word("herz") },
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_not_of_the_language_is_text() {
        assert_eq!(read("12:30 - heart-eyes"), [word("12:30"), word("-"), word("heart-eyes")]);
        assert_eq!(read("\"open"), [Clause { phrase: true, ..word("open") }]);
        assert_eq!(read(" \"\" * ~ "), []);
    }

    proptest! {
        #[test]
        fn any_input_is_read_without_panic(text: String) {
            let _ = read(&text);
        }
    }
}
