//! Rules about Rust code, on a light reading of it: text without comments and literals.

use super::{File, Finding};

/// A longer function does more than one thing.
const FUNCTION_LINES_MAX: usize = 70;
/// These names say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &["util", "utils", "common", "types", "helpers", "misc"];

/// No function, signature included, is longer than [`FUNCTION_LINES_MAX`] lines.
pub(super) fn function_lengths(files: &[File]) -> Vec<Finding> {
    let per_file = |file: &File| -> Vec<Finding> {
        let long = functions(file.text()).into_iter().filter(|f| f.lines > FUNCTION_LINES_MAX);
        long.map(|f| {
            let message = format!("fn {} has {} lines, {FUNCTION_LINES_MAX} allowed", f.name, f.lines);
            file.finding(f.line, message)
        })
        .collect()
    };
    files.iter().filter(|file| file.has_extension(&["rs"])).flat_map(per_file).collect()
}

/// No module is named after nothing in particular.
pub(super) fn module_names(files: &[File]) -> Vec<Finding> {
    let rust = files.iter().filter(|file| file.has_extension(&["rs"]));
    rust.filter_map(|file| {
        let stem = file.path.strip_suffix("/mod.rs").or_else(|| file.path.strip_suffix(".rs"))?;
        let name = stem.rsplit('/').next()?;
        EMPTY_NAMES.contains(&name).then(|| file.finding(0, format!("module named `{name}`: name the thing")))
    })
    .collect()
}

/// No queue is without a limit.
pub(super) fn unbounded_queues(files: &[File]) -> Vec<Finding> {
    const CONSTRUCTORS: &[&str] = &["unbounded_channel(", "mpsc::unbounded(", "unbounded_channel::<"];
    let per_file = |file: &File| -> Vec<Finding> {
        let code = without_comments_and_literals(file.text());
        let hit = |text: &str| CONSTRUCTORS.iter().any(|constructor| text.contains(constructor));
        let lines = code.lines().enumerate().filter(|(_, text)| hit(text));
        lines.map(|(index, _)| file.finding(index + 1, "a queue without a limit")).collect()
    };
    files.iter().filter(|file| file.has_extension(&["rs"])).flat_map(per_file).collect()
}

#[derive(Debug, PartialEq, Eq)]
struct Function {
    name: String,
    line: usize,
    lines: usize,
}

/// Every function with a body, in the order of their ends.
fn functions(source: &str) -> Vec<Function> {
    let code = without_comments_and_literals(source);
    let mut open = Vec::new();
    let mut pending = None;
    let mut done = Vec::new();
    let mut depth = 0_usize;
    for (line, text) in code.lines().enumerate() {
        for token in tokens(text) {
            match token {
                Token::Function(name) => pending = Some((name, line)),
                Token::Open => {
                    depth += 1;
                    open.extend(pending.take().map(|(name, start)| (name, start, depth)));
                }
                Token::Close => {
                    if let Some((name, start, _)) = open.pop_if(|(_, _, at)| *at == depth) {
                        done.push(Function { name, line: start + 1, lines: line - start + 1 });
                    }
                    depth = depth.saturating_sub(1);
                }
                Token::End => pending = None,
            }
        }
    }
    done
}

enum Token {
    Function(String),
    Open,
    Close,
    End,
}

/// The tokens of one line that matter: function heads, braces and semicolons outside `[…; n]`.
fn tokens(text: &str) -> Vec<Token> {
    let mut out = Vec::new();
    let mut word = String::new();
    let mut after_fn = false;
    let mut brackets = 0_usize;
    for c in text.chars().chain(" ".chars()) {
        if c.is_alphanumeric() || c == '_' {
            word.push(c);
            continue;
        }
        if !word.is_empty() {
            let name = std::mem::take(&mut word);
            if after_fn {
                out.push(Token::Function(name));
                after_fn = false;
            } else {
                after_fn = name == "fn";
            }
        }
        match c {
            '{' => out.push(Token::Open),
            '}' => out.push(Token::Close),
            '[' => brackets += 1,
            ']' => brackets = brackets.saturating_sub(1),
            ';' if brackets == 0 => out.push(Token::End),
            '(' => after_fn = false,
            _ => {}
        }
    }
    out
}

/// `source` with comments, strings and character literals blanked out, line by line in place.
fn without_comments_and_literals(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    while at < chars.len() {
        let rest = chars.get(at..).unwrap_or_default();
        let blank = blanked_length(rest);
        if blank == 0 {
            out.extend(rest.first());
            at += 1;
        } else {
            let kept = rest.iter().take(blank).map(|c| if *c == '\n' { '\n' } else { ' ' });
            out.extend(kept);
            at += blank;
        }
    }
    out
}

/// How many characters from the start of `rest` belong to a comment or literal; 0 if it starts with code.
fn blanked_length(rest: &[char]) -> usize {
    match rest {
        ['/', '/', ..] => rest.iter().position(|c| *c == '\n').unwrap_or(rest.len()),
        ['/', '*', ..] => block_comment(rest),
        ['"', ..] => quoted(rest, '"'),
        ['r', '"' | '#', ..] => raw_string(rest),
        ['\'', '\\', ..] | ['\'', _, '\'', ..] => quoted(rest, '\''),
        _ => 0,
    }
}

fn block_comment(rest: &[char]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        match rest.get(at..).unwrap_or_default() {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] if depth == 1 => return at + 2,
            ['*', '/', ..] => (depth, at) = (depth.saturating_sub(1), at + 2),
            _ => at += 1,
        }
    }
    at
}

fn quoted(rest: &[char], quote: char) -> usize {
    let mut escaped = false;
    for (index, c) in rest.iter().enumerate().skip(1) {
        match (escaped, *c) {
            (true, _) => escaped = false,
            (false, '\\') => escaped = true,
            (false, c) if c == quote => return index + 1,
            _ => {}
        }
    }
    rest.len()
}

/// A raw string, or 0 if this is a raw identifier.
fn raw_string(rest: &[char]) -> usize {
    let hashes = rest.iter().skip(1).take_while(|c| **c == '#').count();
    if rest.get(1 + hashes) != Some(&'"') {
        return 0;
    }
    let end: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let body = rest.get(2 + hashes..).unwrap_or_default();
    let close = body.windows(end.len()).position(|window| window == end.as_slice());
    close.map_or(rest.len(), |at| 2 + hashes + at + end.len())
}

#[cfg(test)]
mod tests {
    use super::super::{file, found};
    use super::*;

    #[test]
    fn a_function_of_71_lines_is_too_long_and_one_of_70_is_not() {
        let body = |lines: usize| format!("fn f() {{\n{}}}\n", "    x();\n".repeat(lines - 2));
        let files = [file("a.rs", &body(71)), file("b.rs", &body(70))];
        assert_eq!(found(function_lengths, &files), ["a.rs:1: fn f has 71 lines, 70 allowed"]);
    }

    #[test]
    fn functions_are_told_apart_when_nested_or_without_a_body() {
        let source = "trait T {
            fn a(&self);
            fn b(
                x: [u8; 4],
            ) {
                fn c() {}
            }
        }";
        let got = functions(source);
        let line = |name: &str, line, lines| Function { name: name.to_owned(), line, lines };
        assert_eq!(got, [line("c", 6, 1), line("b", 3, 5)]);
    }

    #[test]
    fn braces_in_literals_and_comments_do_not_count() {
        let source = r##"fn a<'x>(y: &'x str) {
            // }
            let _ = ("}\"}", '}', '\'', r#"}"}"#);
            /* } /* } */ */
        }"##;
        assert_eq!(functions(source), [Function { name: "a".to_owned(), line: 1, lines: 5 }]);
    }

    #[test]
    fn modules_named_after_nothing_are_found() {
        let files = [file("crates/base/x/src/util.rs", ""), file("crates/base/x/src/types/mod.rs", "")];
        let expected = [
            "crates/base/x/src/util.rs: module named `util`: name the thing",
            "crates/base/x/src/types/mod.rs: module named `types`: name the thing",
        ];
        assert_eq!(found(module_names, &files), expected);
    }

    #[test]
    fn a_queue_without_a_limit_is_found_in_code_and_not_in_a_comment() {
        let constructor = ["unbounded", "_channel()"].concat();
        let files = [file("a.rs", &format!("// {constructor}\nlet q = mpsc::{constructor};\n"))];
        assert_eq!(found(unbounded_queues, &files), ["a.rs:2: a queue without a limit"]);
    }
}
