//! Splits expression text into tokens.

use super::{GeneratedError, Result};

/// A token and the byte where it begins.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// Digits, perhaps with point and exponent.
    Number(String),
    /// A quoted text.
    Text(String),
    /// `x'ff'`, `0xff`, `b'01'`.
    Bytes(Vec<u8>),
    /// A name in backquotes.
    Name(String),
    /// A keyword or function name, in lower case.
    Word(String),
    /// An operator or punctuation.
    Symbol(&'static str),
}

/// Longer symbols first, so that `<=>` is not read as `<=`.
const SYMBOLS: [&str; 30] = [
    "<=>", "->>", "->", "<<", ">>", "<=", ">=", "<>", "!=", "&&", "||", "=", "<", ">", "+", "-", "*", "/",
    "%", "&", "|", "^", "~", "!", "(", ")", ",", ".", ";", "@",
];

pub(super) fn tokens(text: &str) -> Result<Vec<(usize, Token)>> {
    let mut lexer = Lexer { text, at: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blanks();
        let start = lexer.at;
        match lexer.token()? {
            Some(token) => tokens.push((start, token)),
            None => return Ok(tokens),
        }
    }
}

struct Lexer<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Lexer<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    fn skip_blanks(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn take_while(&mut self, accept: impl Fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        let end = rest.find(|c| !accept(c)).unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or_default()
    }

    fn token(&mut self) -> Result<Option<Token>> {
        let Some(first) = self.rest().chars().next() else { return Ok(None) };
        let token = match first {
            '\'' | '"' => Token::Text(self.quoted(first)?),
            '`' => Token::Name(self.quoted('`')?),
            '0' if self.peek(1) == b'x' => {
                self.at += 2;
                let digits = self.take_while(|c| c.is_ascii_hexdigit());
                Token::Bytes(self.radix(digits, 16)?)
            }
            'x' | 'X' | 'b' | 'B' if self.peek(1) == b'\'' => {
                self.at += 1;
                let digits = self.quoted('\'')?;
                Token::Bytes(self.radix(&digits, if first.eq_ignore_ascii_case(&'x') { 16 } else { 2 })?)
            }
            '0'..='9' => Token::Number(self.number()),
            '.' if self.peek(1).is_ascii_digit() => Token::Number(self.number()),
            c if c.is_alphabetic() || c == '_' || c == '$' => {
                Token::Word(self.take_while(|c| c.is_alphanumeric() || c == '_' || c == '$').to_lowercase())
            }
            _ => {
                let rest = self.rest();
                let symbol = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol));
                let symbol = symbol.ok_or(GeneratedError::Syntax(self.at))?;
                self.at += symbol.len();
                Token::Symbol(symbol)
            }
        };
        Ok(Some(token))
    }

    fn number(&mut self) -> String {
        let start = self.at;
        self.take_while(|c| c.is_ascii_digit());
        if self.peek(0) == b'.' {
            self.at += 1;
            self.take_while(|c| c.is_ascii_digit());
        }
        let signed = usize::from(matches!(self.peek(1), b'+' | b'-'));
        if matches!(self.peek(0), b'e' | b'E') && self.peek(1 + signed).is_ascii_digit() {
            self.at += 1 + signed;
            self.take_while(|c| c.is_ascii_digit());
        }
        self.text.get(start..self.at).unwrap_or_default().to_owned()
    }

    /// The content of a quoted text; a doubled quote stands for one, and texts know backslash escapes.
    fn quoted(&mut self, quote: char) -> Result<String> {
        let start = self.at;
        let mut out = String::new();
        let mut chars = self.rest().char_indices().skip(1).peekable();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' if quote != '`' => match chars.next().map(|(_, c)| c) {
                    // Patterns need these two as they stand.
                    Some(c @ ('%' | '_')) => out.extend(['\\', c]),
                    Some(c) => out.push(unescaped(c)),
                    None => break,
                },
                c if c == quote => {
                    if chars.peek().is_none_or(|(_, next)| *next != quote) {
                        self.at = start + at + quote.len_utf8();
                        return Ok(out);
                    }
                    out.push(quote);
                    chars.next();
                }
                c => out.push(c),
            }
        }
        Err(GeneratedError::Syntax(start))
    }

    /// Bytes written as hexadecimal or binary digits; an odd first half is filled up with zeros.
    fn radix(&self, digits: &str, radix: u32) -> Result<Vec<u8>> {
        let per_byte = if radix == 16 { 2 } else { 8 };
        let digits = digits.as_bytes();
        let (head, full) = digits.split_at(digits.len() % per_byte);
        let heads = (!head.is_empty()).then_some(head).into_iter();
        let byte = |chunk: &[u8]| {
            let text = std::str::from_utf8(chunk).unwrap_or_default();
            u8::from_str_radix(text, radix).map_err(|_| GeneratedError::Syntax(self.at))
        };
        heads.chain(full.chunks(per_byte)).map(byte).collect()
    }
}

const fn unescaped(c: char) -> char {
    match c {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        'b' => '\u{8}',
        '0' => '\0',
        'Z' => '\u{1a}',
        other => other,
    }
}
