//! Filters as people write them: `category = 'food' and since >= 15.0 and not tags in ('money', 'bank')`.

use super::request::{Edge, Filter, Literal};

/// Deepest nesting of parentheses and negations: reading is recursive.
const DEPTH_MAX: usize = 32;

/// A written filter cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at character {at}: {detail}")]
pub struct FilterError {
    /// Where, counted in characters from 0.
    pub at: usize,
    /// What is wrong there.
    pub detail: String,
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Name(String),
    Text(String),
    Number(String),
    Sign(&'static str),
}

const SIGNS: [&str; 11] = ["<=", ">=", "!=", "<>", "=", "<", ">", "(", ")", ",", ":"];

impl Filter {
    /// Reads a written filter. Comparisons are `=`, `!=`, `<`, `<=`, `>`, `>=`, `in (…)`, `between … and …`,
    /// `exists` and `:` (text match); they are joined by `and`, `or`, `not` and parentheses. Text stands in
    /// single or double quotes; a quote inside is doubled. Names with other characters than letters, digits,
    /// `_`, `.` and `$` stand in backquotes.
    ///
    /// # Errors
    /// [`FilterError`] with the place of the first mistake.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        let tokens = tokens(text)?;
        let mut reader = Reader { tokens, at: 0, end: text.chars().count() };
        let filter = reader.any(0)?;
        match reader.tokens.get(reader.at) {
            None => Ok(filter),
            Some(_) => Err(reader.error("expected `and`, `or` or the end")),
        }
    }
}

fn tokens(text: &str) -> Result<Vec<(usize, Token)>, FilterError> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let at = text.get(..text.len() - rest.len()).unwrap_or_default().chars().count();
        let Some(first) = rest.chars().next() else { return Ok(tokens) };
        let (token, after) = token(first, rest).ok_or_else(|| FilterError {
            at,
            detail: if matches!(first, '\'' | '"' | '`') {
                format!("{first} is not closed")
            } else {
                format!("{first:?} is not expected")
            },
        })?;
        tokens.push((at, token));
        rest = after;
    }
}

fn token(first: char, rest: &str) -> Option<(Token, &str)> {
    if matches!(first, '\'' | '"' | '`') {
        let (text, after) = quoted(first, rest)?;
        return Some((if first == '`' { Token::Name(text) } else { Token::Text(text) }, after));
    }
    let take = |is_part: fn(char) -> bool| {
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        rest.split_at(end)
    };
    let signed =
        rest.strip_prefix(['-', '+']).is_some_and(|after| after.starts_with(|c: char| c.is_ascii_digit()));
    if first.is_ascii_digit() || signed {
        let (number, after) = take(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+'));
        return Some((Token::Number(number.to_owned()), after));
    }
    if first.is_alphanumeric() || matches!(first, '_' | '$') {
        let (name, after) = take(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '$'));
        return Some((Token::Name(name.to_owned()), after));
    }
    SIGNS.iter().find_map(|sign| Some((Token::Sign(sign), rest.strip_prefix(sign)?)))
}

/// Text up to the closing quote; a doubled quote stands for one.
fn quoted(quote: char, rest: &str) -> Option<(String, &str)> {
    let mut text = String::new();
    let mut rest = rest.strip_prefix(quote)?;
    loop {
        let (part, after) = rest.split_once(quote)?;
        text.push_str(part);
        match after.strip_prefix(quote) {
            Some(more) => {
                text.push(quote);
                rest = more;
            }
            None => return Some((text, after)),
        }
    }
}

struct Reader {
    tokens: Vec<(usize, Token)>,
    at: usize,
    end: usize,
}

impl Reader {
    fn error(&self, detail: &str) -> FilterError {
        let at = self.tokens.get(self.at).map_or(self.end, |(at, _)| *at);
        FilterError { at, detail: detail.to_owned() }
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at)?.1.clone();
        self.at += 1;
        Some(token)
    }

    fn sign(&mut self, sign: &str) -> bool {
        let found = matches!(self.tokens.get(self.at), Some((_, Token::Sign(s))) if *s == sign);
        self.at += usize::from(found);
        found
    }

    fn word(&mut self, word: &str) -> bool {
        let found =
            matches!(self.tokens.get(self.at), Some((_, Token::Name(n))) if n.eq_ignore_ascii_case(word));
        self.at += usize::from(found);
        found
    }

    fn any(&mut self, depth: usize) -> Result<Filter, FilterError> {
        let mut parts = vec![self.all(depth)?];
        while self.word("or") {
            parts.push(self.all(depth)?);
        }
        Ok(one_or(parts, Filter::Or))
    }

    fn all(&mut self, depth: usize) -> Result<Filter, FilterError> {
        let mut parts = vec![self.single(depth)?];
        while self.word("and") {
            parts.push(self.single(depth)?);
        }
        Ok(one_or(parts, Filter::And))
    }

    fn single(&mut self, depth: usize) -> Result<Filter, FilterError> {
        if depth > DEPTH_MAX {
            return Err(self.error("nested too deeply"));
        }
        if self.word("not") {
            return Ok(Filter::Not(Box::new(self.single(depth + 1)?)));
        }
        if self.sign("(") {
            let inside = self.any(depth + 1)?;
            return if self.sign(")") { Ok(inside) } else { Err(self.error("expected `)`")) };
        }
        if self.word("exists") {
            return Ok(Filter::Exists { field: self.name()? });
        }
        let field = self.name()?;
        self.comparison(field)
    }

    fn comparison(&mut self, field: String) -> Result<Filter, FilterError> {
        if self.word("in") {
            return self.list(field);
        }
        if self.word("exists") {
            return Ok(Filter::Exists { field });
        }
        if self.word("between") {
            let from = self.edge(true)?;
            if !self.word("and") {
                return Err(self.error("expected `and`"));
            }
            return Ok(Filter::Range { field, from: Some(from), to: Some(self.edge(true)?) });
        }
        match self.next() {
            Some(Token::Sign(":")) => match self.value()? {
                Literal::Text(text) => Ok(Filter::Match { field, text }),
                _ => Err(self.error("text in quotes is expected after `:`")),
            },
            Some(Token::Sign("=")) => Ok(Filter::Eq { field, value: self.value()? }),
            Some(Token::Sign("!=" | "<>")) => {
                Ok(Filter::Not(Box::new(Filter::Eq { field, value: self.value()? })))
            }
            Some(Token::Sign("<")) => Ok(Filter::Range { field, from: None, to: Some(self.edge(false)?) }),
            Some(Token::Sign("<=")) => Ok(Filter::Range { field, from: None, to: Some(self.edge(true)?) }),
            Some(Token::Sign(">")) => Ok(Filter::Range { field, from: Some(self.edge(false)?), to: None }),
            Some(Token::Sign(">=")) => Ok(Filter::Range { field, from: Some(self.edge(true)?), to: None }),
            _ => {
                self.at = self.at.saturating_sub(1);
                Err(self.error("expected a comparison such as `=`, `>=` or `in`"))
            }
        }
    }

    fn list(&mut self, field: String) -> Result<Filter, FilterError> {
        if !self.sign("(") {
            return Err(self.error("expected `(`"));
        }
        let mut values = vec![self.value()?];
        while self.sign(",") {
            values.push(self.value()?);
        }
        if self.sign(")") { Ok(Filter::In { field, values }) } else { Err(self.error("expected `,` or `)`")) }
    }

    fn edge(&mut self, inclusive: bool) -> Result<Edge, FilterError> {
        Ok(Edge { value: self.value()?, inclusive })
    }

    fn name(&mut self) -> Result<String, FilterError> {
        match self.tokens.get(self.at) {
            Some((_, Token::Name(name))) => {
                let name = name.clone();
                self.at += 1;
                Ok(name)
            }
            _ => Err(self.error("expected the name of a field")),
        }
    }

    fn value(&mut self) -> Result<Literal, FilterError> {
        let value = match self.tokens.get(self.at) {
            Some((_, Token::Text(text))) => Literal::Text(text.clone()),
            Some((_, Token::Number(number))) => number_of(number),
            Some((_, Token::Name(name))) if name.eq_ignore_ascii_case("true") => Literal::Bool(true),
            Some((_, Token::Name(name))) if name.eq_ignore_ascii_case("false") => Literal::Bool(false),
            Some((_, Token::Name(name))) => Literal::Text(name.clone()),
            _ => return Err(self.error("expected a value")),
        };
        self.at += 1;
        Ok(value)
    }
}

/// A number as written, without loss: what no machine type holds exactly stays text.
fn number_of(text: &str) -> Literal {
    let unsigned = text.parse().map(Literal::UInt).ok();
    let signed = || text.parse().map(Literal::Int).ok();
    unsigned.or_else(signed).unwrap_or_else(|| Literal::Text(text.to_owned()))
}

fn one_or(mut parts: Vec<Filter>, many: fn(Vec<Filter>) -> Filter) -> Filter {
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        last => {
            parts.extend(last);
            many(parts)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn eq(field: &str, value: Literal) -> Filter {
        Filter::Eq { field: field.to_owned(), value }
    }

    fn text(text: &str) -> Literal {
        Literal::Text(text.to_owned())
    }

    #[test]
    fn and_binds_closer_than_or_and_parentheses_closest() {
        let (a, b, c) = (eq("a", Literal::UInt(1)), eq("b", Literal::Int(-2)), eq("c.d", text("x'y")));
        let read = Filter::parse("a = 1 or b = -2 and c.d = 'x''y'").expect("a filter");
        assert_eq!(read, Filter::Or(vec![a.clone(), Filter::And(vec![b.clone(), c.clone()])]));
        let read = Filter::parse("(a=1 OR b=-2) AND NOT c.d=\"x'y\"").expect("a filter");
        assert_eq!(read, Filter::And(vec![Filter::Or(vec![a, b]), Filter::Not(Box::new(c))]));
    }

    #[test]
    fn every_comparison_is_read() {
        let edge = |value, inclusive| Some(Edge { value, inclusive });
        let range = |from, to| Filter::Range { field: "f".to_owned(), from, to };
        let read = |text: &str| Filter::parse(text).expect(text);
        assert_eq!(read("f >= 15.0"), range(edge(text("15.0"), true), None));
        assert_eq!(read("f < 2026-11-30"), range(None, edge(text("2026-11-30"), false)));
        assert_eq!(
            read("f between 1 and 2"),
            range(edge(Literal::UInt(1), true), edge(Literal::UInt(2), true))
        );
        assert_eq!(read("f exists"), Filter::Exists { field: "f".to_owned() });
        assert_eq!(read("`odd name` = true"), eq("odd name", Literal::Bool(true)));
        let values = vec![text("a"), Literal::UInt(u64::MAX)];
        assert_eq!(read("f in (a, 18446744073709551615)"), Filter::In { field: "f".to_owned(), values });
        assert_eq!(
            read("f : 'red heart'"),
            Filter::Match { field: "f".to_owned(), text: "red heart".to_owned() }
        );
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        let at = |text: &str| Filter::parse(text).expect_err(text).at;
        assert_eq!([at(""), at("a ="), at("a = 'x"), at("ä = 1 )"), at("a 5")], [0, 3, 4, 6, 2]);
        let deep = "(".repeat(100_000);
        assert_eq!(at(&deep), DEPTH_MAX + 1);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_without_panic(text: String) {
            let _ = Filter::parse(&text);
        }
    }
}
