//! How text becomes tokens. Two analyses, both ours, so that indexing, querying and highlighting share one
//! walk over the text:
//!
//! - *words*: runs of letters and digits, lower-cased, never stemmed: `cat` finds the word cat and nothing
//!   else. Scripts without spaces (Chinese, Japanese, Korean) and symbols such as emoji give one token per
//!   character; a query of several becomes a phrase, which is exact substring search for those scripts.
//! - *inner*: overlapping three-letter pieces of each word, for languages that build compounds: the pieces of
//!   `herz`, as a phrase, are found inside `Herzdekoration`. A gap between words keeps a phrase from matching
//!   across them.

use std::ops::Range;

use tantivy::tokenizer::{Token, TokenStream, Tokenizer};

/// Longest token in bytes. Longer runs (encoded blobs, mostly) are cut: they are not words, and the index
/// stores each distinct term once more per segment.
const TOKEN_BYTES_MAX: usize = 128;
/// Letters of one piece of the *inner* analysis. Three is the shortest length whose pieces are selective and
/// whose number stays near the number of letters.
pub(crate) const PIECE_CHARS: usize = 3;

/// What a character is to the analysis.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Part of a word.
    Word,
    /// A token by itself.
    Single,
    /// Joins onto what precedes it without being searchable: combining marks, joiners, variation selectors.
    Joiner,
    /// Ends a word.
    Gap,
}

fn class(c: char) -> Class {
    if c.is_ascii() {
        return if c.is_ascii_alphanumeric() { Class::Word } else { Class::Gap };
    }
    match u32::from(c) {
        0x0300..=0x036f | 0x200c..=0x200d | 0xfe00..=0xfe0f | 0x1f3fb..=0x1f3ff | 0xe0020..=0xe007f => {
            Class::Joiner
        }
        // Kana, CJK ideographs and their extensions, Hangul syllables, Thai and Lao: no spaces between words.
        0x0e00..=0x0eff
        | 0x3005..=0x3007
        | 0x3041..=0x30ff
        | 0x3400..=0x9fff
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xff66..=0xff9f
        | 0x2_0000..=0x3_ffff => Class::Single,
        // Arrows, technical signs, dingbats, emoji.
        0x2190..=0x2bff | 0x1f000..=0x1faff => Class::Single,
        _ if c.is_alphanumeric() => Class::Word,
        _ => Class::Gap,
    }
}

/// One token and where it stands in the text, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    /// Lower-cased text.
    pub(crate) text: String,
    /// Where it stands.
    pub(crate) at: Range<usize>,
    /// Whether it is one character of a script without spaces, or a symbol.
    pub(crate) single: bool,
}

/// The words of a text, in order.
pub(crate) fn words(text: &str) -> Vec<Word> {
    let mut found = Vec::new();
    let mut open: Option<Word> = None;
    for (start, c) in text.char_indices() {
        let end = start + c.len_utf8();
        match class(c) {
            Class::Word => {
                let word =
                    open.get_or_insert_with(|| Word { text: String::new(), at: start..end, single: false });
                if word.text.len() < TOKEN_BYTES_MAX {
                    word.text.extend(c.to_lowercase());
                }
                word.at.end = end;
            }
            Class::Single => {
                found.extend(open.take());
                found.push(Word { text: c.to_lowercase().collect(), at: start..end, single: true });
            }
            Class::Joiner => match (&mut open, found.last_mut()) {
                (Some(word), _) => {
                    word.text.push(c);
                    word.at.end = end;
                }
                (None, Some(last)) if last.single && last.at.end == start => last.at.end = end,
                _ => {}
            },
            Class::Gap => found.extend(open.take()),
        }
    }
    found.extend(open);
    found
}

/// The pieces of one word: overlapping runs of [`PIECE_CHARS`] letters, or the word itself where it is
/// shorter.
pub(crate) fn pieces(word: &str) -> Vec<&str> {
    let starts: Vec<usize> = word.char_indices().map(|(at, _)| at).chain([word.len()]).collect();
    if starts.len() <= PIECE_CHARS + 1 {
        return if word.is_empty() { Vec::new() } else { vec![word] };
    }
    starts.windows(PIECE_CHARS + 1).filter_map(|w| word.get(*w.first()?..*w.last()?)).collect()
}

/// Tokens computed ahead and handed out one by one.
pub(crate) struct Ready {
    tokens: std::vec::IntoIter<Token>,
    token: Token,
}

impl Ready {
    fn new(tokens: Vec<Token>) -> Self {
        Self { tokens: tokens.into_iter(), token: Token::default() }
    }
}

impl TokenStream for Ready {
    fn advance(&mut self) -> bool {
        match self.tokens.next() {
            Some(token) => {
                self.token = token;
                true
            }
            None => false,
        }
    }

    fn token(&self) -> &Token {
        &self.token
    }

    fn token_mut(&mut self) -> &mut Token {
        &mut self.token
    }
}

fn token(text: String, at: &Range<usize>, position: usize) -> Token {
    Token { offset_from: at.start, offset_to: at.end, position, text, position_length: 1 }
}

/// The *words* analysis.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WordTokenizer;

impl Tokenizer for WordTokenizer {
    type TokenStream<'a> = Ready;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> Ready {
        let tokens = words(text).into_iter().enumerate();
        Ready::new(tokens.map(|(position, word)| token(word.text, &word.at, position)).collect())
    }
}

/// The *inner* analysis.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InnerTokenizer;

impl Tokenizer for InnerTokenizer {
    type TokenStream<'a> = Ready;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> Ready {
        let mut tokens = Vec::new();
        let mut position = 0;
        for word in words(text).into_iter().filter(|word| !word.single) {
            for piece in pieces(&word.text) {
                tokens.push(token(piece.to_owned(), &word.at, position));
                position += 1;
            }
            position += 1;
        }
        Ready::new(tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        words(text).into_iter().map(|word| word.text).collect()
    }

    #[test]
    fn words_are_lower_cased_runs_and_nothing_is_stemmed() {
        assert_eq!(
            texts("Smiling CATS with heart-eyes, 2x"),
            ["smiling", "cats", "with", "heart", "eyes", "2x"]
        );
        assert_eq!(texts("GRÜNES Herz (Organ)"), ["grünes", "herz", "organ"]);
    }

    #[test]
    fn scripts_without_spaces_give_one_token_per_character() {
        assert_eq!(texts("飛行機離陸"), ["飛", "行", "機", "離", "陸"]);
        assert_eq!(texts("わーいabc犬"), ["わ", "ー", "い", "abc", "犬"]);
    }

    #[test]
    fn an_emoji_is_a_token_and_its_joiners_are_not() {
        assert_eq!(texts("🐈\u{200d}⬛ ✈\u{fe0f}"), ["🐈", "⬛", "✈"]);
        assert_eq!(words("✈\u{fe0f}x").first().map(|w| w.at.clone()), Some(0..6));
    }

    #[test]
    fn pieces_of_a_part_follow_each_other_inside_the_pieces_of_the_whole() {
        assert_eq!(pieces("herz"), ["her", "erz"]);
        assert_eq!(pieces("kunstherzen"), ["kun", "uns", "nst", "sth", "the", "her", "erz", "rze", "zen"]);
        assert_eq!(pieces("ei"), ["ei"]);
        assert_eq!(pieces("öä"), ["öä"]);
        assert!(pieces("").is_empty());
    }

    #[test]
    fn positions_of_pieces_leave_a_gap_between_words() {
        let mut tokenizer = InnerTokenizer;
        let mut stream = tokenizer.token_stream("abcd efg");
        let mut seen = Vec::new();
        while stream.advance() {
            seen.push((stream.token().text.clone(), stream.token().position));
        }
        assert_eq!(seen, [("abc".to_owned(), 0), ("bcd".to_owned(), 1), ("efg".to_owned(), 3)]);
    }

    #[test]
    fn a_run_of_any_length_gives_a_bounded_token() {
        let long = "x".repeat(10_000);
        assert!(words(&long).iter().all(|word| word.text.len() <= TOKEN_BYTES_MAX + 4));
    }
}
