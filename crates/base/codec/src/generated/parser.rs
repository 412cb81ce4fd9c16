//! Parses expression text by MySQL's operator precedence.

use std::borrow::Cow;

use super::lexer::{Token, tokens};
use super::{Binary, DEPTH_MAX, Expr, GeneratedError, OPERATORS_MAX, Result, Truth, Unary};
use crate::decimal::Decimal;
use crate::meta::{FieldType, SqlType, UNSPECIFIED_LENGTH};
use crate::value::Value;

pub(super) fn parse(text: &str, column: &dyn Fn(&str) -> Option<usize>) -> Result<Expr> {
    let mut parser = Parser { tokens: tokens(text)?, at: 0, depth: 0, operators: 0, column, end: text.len() };
    let expr = parser.expression()?;
    match parser.tokens.get(parser.at) {
        None => Ok(expr),
        Some((at, _)) => Err(GeneratedError::Syntax(*at)),
    }
}

struct Parser<'p> {
    tokens: Vec<(usize, Token)>,
    at: usize,
    depth: usize,
    operators: usize,
    column: &'p dyn Fn(&str) -> Option<usize>,
    end: usize,
}

/// Binary operators by precedence, loosest first. Comparisons are handled apart, between the third and the
/// fourth.
const LEVELS: [&[(&str, Binary)]; 9] = [
    &[("or", Binary::Or), ("||", Binary::Or)],
    &[("xor", Binary::Xor)],
    &[("and", Binary::And), ("&&", Binary::And)],
    &[("|", Binary::BitOr)],
    &[("&", Binary::BitAnd)],
    &[("<<", Binary::ShiftLeft), (">>", Binary::ShiftRight)],
    &[("+", Binary::Add), ("-", Binary::Subtract)],
    &[
        ("*", Binary::Multiply),
        ("/", Binary::Divide),
        ("div", Binary::IntDivide),
        ("%", Binary::Modulo),
        ("mod", Binary::Modulo),
    ],
    &[("^", Binary::BitXor)],
];
/// Below this level comparisons bind tighter, above it looser.
const COMPARISON_LEVEL: usize = 3;

const COMPARISONS: [(&str, Binary); 8] = [
    ("=", Binary::Equal),
    ("<=>", Binary::NullEqual),
    ("<>", Binary::NotEqual),
    ("!=", Binary::NotEqual),
    ("<=", Binary::LessEqual),
    ("<", Binary::Less),
    (">=", Binary::GreaterEqual),
    (">", Binary::Greater),
];

impl Parser<'_> {
    fn error<T>(&self) -> Result<T> {
        Err(GeneratedError::Syntax(self.tokens.get(self.at).map_or(self.end, |(at, _)| *at)))
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(_, token)| token)
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.peek().cloned();
        self.at += 1;
        token
    }

    /// Whether the next token is this word or symbol.
    fn sees(&self, text: &str) -> bool {
        match self.peek() {
            Some(Token::Word(word)) => word == text,
            Some(Token::Symbol(symbol)) => *symbol == text,
            _ => false,
        }
    }

    fn accept(&mut self, text: &str) -> bool {
        let seen = self.sees(text);
        self.at += usize::from(seen);
        seen
    }

    fn expect(&mut self, text: &str) -> Result<()> {
        if self.accept(text) { Ok(()) } else { self.error() }
    }

    fn expression(&mut self) -> Result<Expr> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return self.error();
        }
        let expr = self.level(0);
        self.depth -= 1;
        expr
    }

    /// An operand chain of the operators at `level`.
    fn level(&mut self, level: usize) -> Result<Expr> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.tighter(level)?;
        loop {
            let Some((_, operator)) = operators.iter().find(|(text, _)| self.sees(text)) else {
                return Ok(left);
            };
            self.at += 1;
            self.count_operator()?;
            if matches!(operator, Binary::Add | Binary::Subtract) && self.accept("interval") {
                left = self.interval(left, *operator == Binary::Subtract)?;
                continue;
            }
            let right = self.tighter(level)?;
            left = Expr::Binary(*operator, Box::new(left), Box::new(right));
        }
    }

    fn count_operator(&mut self) -> Result<()> {
        self.operators += 1;
        if self.operators > OPERATORS_MAX { self.error() } else { Ok(()) }
    }

    fn tighter(&mut self, level: usize) -> Result<Expr> {
        match level + 1 {
            COMPARISON_LEVEL => self.negation(),
            next => self.level(next),
        }
    }

    fn negation(&mut self) -> Result<Expr> {
        let mut negations = 0;
        while self.accept("not") {
            negations += 1;
        }
        let mut expr = self.comparison()?;
        for _ in 0..negations {
            self.count_operator()?;
            expr = Expr::Unary(Unary::Not, Box::new(expr));
        }
        Ok(expr)
    }

    fn comparison(&mut self) -> Result<Expr> {
        let mut left = self.level(COMPARISON_LEVEL)?;
        loop {
            if let Some((_, operator)) = COMPARISONS.iter().find(|(text, _)| self.sees(text)) {
                self.at += 1;
                self.count_operator()?;
                let right = self.level(COMPARISON_LEVEL)?;
                left = Expr::Binary(*operator, Box::new(left), Box::new(right));
            } else if self.accept("is") {
                self.count_operator()?;
                left = self.is(left)?;
            } else {
                let negated = self.accept("not");
                if negated {
                    self.count_operator()?;
                }
                let (start, test) = (self.at, self.membership(&left)?);
                match test {
                    Some(test) if negated => left = Expr::Unary(Unary::Not, Box::new(test)),
                    Some(test) => left = test,
                    None if negated || self.at != start => return self.error(),
                    None => return Ok(left),
                }
            }
        }
    }

    fn is(&mut self, operand: Expr) -> Result<Expr> {
        let negated = self.accept("not");
        let truth = match self.next() {
            Some(Token::Word(word)) if word == "null" || word == "unknown" => Truth::Null,
            Some(Token::Word(word)) if word == "true" => Truth::True,
            Some(Token::Word(word)) if word == "false" => Truth::False,
            _ => return self.error(),
        };
        Ok(Expr::Is(Box::new(operand), truth, negated))
    }

    /// `IN`, `BETWEEN` and `LIKE`, if one of them follows.
    fn membership(&mut self, operand: &Expr) -> Result<Option<Expr>> {
        let operand = || Box::new(operand.clone());
        if self.sees("in") || self.sees("between") || self.sees("like") {
            self.count_operator()?;
        }
        if self.accept("in") {
            self.expect("(")?;
            return Ok(Some(Expr::In(operand(), self.arguments()?)));
        }
        if self.accept("between") {
            let low = self.level(COMPARISON_LEVEL)?;
            self.expect("and")?;
            let high = self.level(COMPARISON_LEVEL)?;
            return Ok(Some(Expr::Between(operand(), Box::new((low, high)))));
        }
        if self.accept("like") {
            let pattern = self.unary()?;
            let escape = if self.accept("escape") {
                match self.next() {
                    Some(Token::Text(text)) => text.chars().next().unwrap_or('\\'),
                    _ => return self.error(),
                }
            } else {
                '\\'
            };
            return Ok(Some(Expr::Like(operand(), Box::new(pattern), escape)));
        }
        Ok(None)
    }

    fn unary(&mut self) -> Result<Expr> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return self.error();
        }
        let operator = if self.accept("-") {
            Some(Unary::Minus)
        } else if self.accept("~") {
            Some(Unary::Invert)
        } else if self.accept("!") {
            Some(Unary::Not)
        } else {
            None
        };
        let expr = match operator {
            Some(operator) => Expr::Unary(operator, Box::new(self.unary()?)),
            None if self.accept("+") => self.unary()?,
            None => self.primary()?,
        };
        self.depth -= 1;
        Ok(expr)
    }

    fn primary(&mut self) -> Result<Expr> {
        let expr = match self.next() {
            Some(Token::Number(text)) => Expr::Literal(number(&text)),
            Some(Token::Text(text)) => Expr::Literal(Value::Text(Cow::Owned(text))),
            Some(Token::Bytes(bytes)) => Expr::Literal(Value::Bytes(Cow::Owned(bytes))),
            Some(Token::Name(name)) => self.column(name)?,
            Some(Token::Word(word)) => self.word(word)?,
            Some(Token::Symbol("(")) => {
                let expr = self.expression()?;
                self.expect(")")?;
                expr
            }
            _ => {
                self.at -= 1;
                return self.error();
            }
        };
        self.path(expr)
    }

    /// `column->'$.path'` and `column->>'$.path'`.
    fn path(&mut self, operand: Expr) -> Result<Expr> {
        let unquote = self.sees("->>");
        if !(unquote || self.sees("->")) {
            return Ok(operand);
        }
        self.at += 1;
        if matches!(self.peek(), Some(Token::Word(word)) if word.starts_with('_')) {
            self.at += 1;
        }
        let Some(Token::Text(path)) = self.next() else { return self.error() };
        let path = Expr::Literal(Value::Text(Cow::Owned(path)));
        let extract = Expr::Call("json_extract".to_owned(), vec![operand, path]);
        Ok(if unquote { Expr::Call("json_unquote".to_owned(), vec![extract]) } else { extract })
    }

    /// A column; qualifiers in front of its name (`db`.`table`.) are dropped.
    fn column(&mut self, mut name: String) -> Result<Expr> {
        while self.accept(".") {
            match self.next() {
                Some(Token::Name(last) | Token::Word(last)) => name = last,
                _ => return self.error(),
            }
        }
        let index = (self.column)(&name);
        index.map(Expr::Column).ok_or(GeneratedError::UnknownColumn(name))
    }

    fn word(&mut self, word: String) -> Result<Expr> {
        match word.as_str() {
            "null" => return Ok(Expr::Literal(Value::Null)),
            "true" => return Ok(Expr::Literal(Value::Int(1))),
            "false" => return Ok(Expr::Literal(Value::Int(0))),
            "case" => return self.case(),
            "cast" => return self.cast(),
            "convert" if self.sees("(") => return self.convert(),
            "binary" if !self.sees("(") => {
                let operand = self.unary()?;
                return Ok(Expr::Cast(Box::new(operand), text_type("binary", UNSPECIFIED_LENGTH)));
            }
            "interval" | "date" | "time" | "timestamp" if matches!(self.peek(), Some(Token::Text(_))) => {
                let Some(Token::Text(text)) = self.next() else { return self.error() };
                let literal = Expr::Literal(Value::Text(Cow::Owned(text)));
                return Ok(Expr::Call(word, vec![literal]));
            }
            _ => {}
        }
        // A character set introducer: `_utf8mb4'text'`.
        if word.starts_with('_') && matches!(self.peek(), Some(Token::Text(_) | Token::Bytes(_))) {
            return self.primary();
        }
        if !self.accept("(") {
            return self.column(word);
        }
        self.call(word)
    }

    fn arguments(&mut self) -> Result<Vec<Expr>> {
        let mut arguments = Vec::new();
        if self.accept(")") {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.expression()?);
            if self.accept(")") {
                return Ok(arguments);
            }
            self.expect(",")?;
        }
    }

    /// A function call behind its opening parenthesis; some have a grammar of their own.
    fn call(&mut self, name: String) -> Result<Expr> {
        match name.as_str() {
            "date_add" | "date_sub" | "adddate" | "subdate" => {
                let date = self.expression()?;
                self.expect(",")?;
                let subtract = name.ends_with("sub") || name.starts_with("sub");
                if self.accept("interval") {
                    let sum = self.interval(date, subtract)?;
                    self.expect(")")?;
                    return Ok(sum);
                }
                let days = self.expression()?;
                self.expect(")")?;
                Ok(add_interval(date, days, "day".to_owned(), subtract))
            }
            "extract" | "timestampdiff" | "timestampadd" => {
                let Some(Token::Word(unit)) = self.next() else { return self.error() };
                self.expect(if name == "extract" { "from" } else { "," })?;
                let mut arguments = vec![Expr::Literal(Value::Text(Cow::Owned(unit)))];
                arguments.extend(self.arguments()?);
                Ok(Expr::Call(name, arguments))
            }
            "trim" => self.trim(),
            "position" => {
                let part = self.level(COMPARISON_LEVEL)?;
                self.expect("in")?;
                let whole = self.expression()?;
                self.expect(")")?;
                Ok(Expr::Call("locate".to_owned(), vec![part, whole]))
            }
            _ => Ok(Expr::Call(name, self.arguments()?)),
        }
    }

    /// `TRIM([BOTH | LEADING | TRAILING] [what] FROM text)` or `TRIM(text)`.
    fn trim(&mut self) -> Result<Expr> {
        let side =
            ["both", "leading", "trailing"].into_iter().find(|side| self.accept(side)).unwrap_or("both");
        let blank = || Expr::Literal(Value::Text(Cow::Borrowed(" ")));
        let first = if self.sees("from") { blank() } else { self.expression()? };
        let (what, text) = if self.accept("from") { (first, self.expression()?) } else { (blank(), first) };
        self.expect(")")?;
        Ok(Expr::Call(format!("trim_{side}"), vec![text, what]))
    }

    /// An amount and its unit, behind `INTERVAL`.
    fn interval(&mut self, date: Expr, subtract: bool) -> Result<Expr> {
        let amount = self.expression()?;
        match self.next() {
            Some(Token::Word(unit)) => Ok(add_interval(date, amount, unit, subtract)),
            _ => self.error(),
        }
    }

    fn case(&mut self) -> Result<Expr> {
        let operand = if self.sees("when") { None } else { Some(Box::new(self.expression()?)) };
        let mut branches = Vec::new();
        while self.accept("when") {
            let when = self.expression()?;
            self.expect("then")?;
            branches.push((when, self.expression()?));
        }
        let otherwise = if self.accept("else") { Some(Box::new(self.expression()?)) } else { None };
        self.expect("end")?;
        Ok(Expr::Case(operand, branches, otherwise))
    }

    fn cast(&mut self) -> Result<Expr> {
        self.expect("(")?;
        let operand = self.expression()?;
        self.expect("as")?;
        let to = self.cast_type()?;
        self.expect(")")?;
        Ok(Expr::Cast(Box::new(operand), to))
    }

    /// `CONVERT(x, type)` is a cast; `CONVERT(x USING charset)` leaves a text as it is.
    fn convert(&mut self) -> Result<Expr> {
        self.expect("(")?;
        let operand = self.expression()?;
        let to = if self.accept("using") {
            match self.next() {
                Some(Token::Word(charset) | Token::Name(charset) | Token::Text(charset)) => {
                    text_type(&charset, UNSPECIFIED_LENGTH)
                }
                _ => return self.error(),
            }
        } else {
            self.expect(",")?;
            self.cast_type()?
        };
        self.expect(")")?;
        Ok(Expr::Cast(Box::new(operand), to))
    }

    fn cast_type(&mut self) -> Result<FieldType> {
        let Some(Token::Word(name)) = self.next() else { return self.error() };
        let (first, second) = self.type_arguments()?;
        let plain = |tp: SqlType, flen: i64, decimal: i64| FieldType {
            tp,
            flen,
            decimal,
            charset: "binary".to_owned(),
            ..FieldType::default()
        };
        let mut to = match name.as_str() {
            "signed" | "unsigned" => plain(SqlType::BigInt, 20, 0),
            "char" | "nchar" => {
                let mut to = text_type("utf8mb4", first.unwrap_or(UNSPECIFIED_LENGTH));
                if self.accept("character") && self.accept("set") || self.accept("charset") {
                    if let Some(Token::Word(charset)) = self.next() {
                        to = text_type(&charset, first.unwrap_or(UNSPECIFIED_LENGTH));
                    }
                } else if self.accept("binary") {
                    to = text_type("binary", first.unwrap_or(UNSPECIFIED_LENGTH));
                }
                to
            }
            "binary" => {
                let mut to = text_type("binary", first.unwrap_or(UNSPECIFIED_LENGTH));
                to.tp = if first.is_some() { SqlType::Char } else { SqlType::VarString };
                to
            }
            "decimal" => plain(SqlType::Decimal, first.unwrap_or(10), second.unwrap_or(0)),
            "date" => plain(SqlType::Date, 10, 0),
            "datetime" => plain(SqlType::DateTime, 19, first.unwrap_or(0)),
            "time" => plain(SqlType::Time, 10, first.unwrap_or(0)),
            "year" => plain(SqlType::Year, 4, 0),
            "double" | "real" => plain(SqlType::Double, UNSPECIFIED_LENGTH, UNSPECIFIED_LENGTH),
            "float" => plain(SqlType::Float, UNSPECIFIED_LENGTH, UNSPECIFIED_LENGTH),
            "json" => plain(SqlType::Json, UNSPECIFIED_LENGTH, UNSPECIFIED_LENGTH),
            other => return Err(GeneratedError::Unsupported(format!("cast to {other}"))),
        };
        if name == "unsigned" {
            to.flags = crate::meta::ColumnFlags::UNSIGNED;
        }
        let _ = self.accept("integer") || self.accept("int");
        if self.sees("array") {
            return Err(GeneratedError::Unsupported("cast to array".to_owned()));
        }
        Ok(to)
    }

    fn type_arguments(&mut self) -> Result<(Option<i64>, Option<i64>)> {
        if !self.accept("(") {
            return Ok((None, None));
        }
        let mut numbers = Vec::new();
        loop {
            match self.next() {
                Some(Token::Number(text)) => numbers.push(text.parse().unwrap_or(0)),
                _ => return self.error(),
            }
            if self.accept(")") {
                return Ok((numbers.first().copied(), numbers.get(1).copied()));
            }
            self.expect(",")?;
        }
    }
}

fn add_interval(date: Expr, amount: Expr, unit: String, subtract: bool) -> Expr {
    Expr::Interval(Box::new(date), Box::new(amount), unit, subtract)
}

fn text_type(charset: &str, flen: i64) -> FieldType {
    let collate = if charset == "binary" { "binary".to_owned() } else { format!("{charset}_bin") };
    FieldType { tp: SqlType::VarString, flen, charset: charset.to_owned(), collate, ..FieldType::default() }
}

/// A number literal: an integer if it is one, exact if it has a point, a float if it has an exponent.
fn number(text: &str) -> Value<'static> {
    if let Ok(int) = text.parse() {
        return Value::Int(int);
    }
    if let Ok(uint) = text.parse() {
        return Value::UInt(uint);
    }
    let exact = if text.contains(['e', 'E']) { None } else { Decimal::parse(text) };
    exact.map_or_else(|| Value::Double(text.parse().unwrap_or(0.0)), Value::Decimal)
}
