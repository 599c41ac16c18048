//! The types of generated locals.

/// The type of a local, without the reference if it is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ty {
    /// `u32`
    Number,
    /// `bool`
    Flag,
    /// `String`
    Text,
    /// `Vec<u32>`
    List,
    /// `Option<u32>`
    Maybe,
    /// `(u32, String)`
    Pair,
    /// `Item`
    Item,
    /// `Shape`
    Shape,
    /// `Vec<Vec<u32>>`
    Grid,
    /// `Vec<Item>`
    Items,
    /// `Box<Item>`, out of a pattern
    Boxed,
    /// `Option<Box<Item>>`, out of a pattern
    Next,
    /// `Vec<String>`, out of a pattern
    Tags,
    /// `char`
    Letter,
    /// `usize`
    Index,
    /// `[u32]`, behind a reference
    Slice,
    /// `&'static str` that is a literal
    Literal,
    /// A value that cannot be saved
    Token,
    /// `Noisy`, a value that can be saved and has a destructor
    Noisy,
    /// `(bool, Option<u32>)`, only ever a scrutinee
    Choice,
}

/// The types that expressions are made of; the others come out of patterns and borrows.
pub(crate) const VALUES: [Ty; 10] =
    [Ty::Number, Ty::Flag, Ty::Text, Ty::List, Ty::Maybe, Ty::Pair, Ty::Item, Ty::Shape, Ty::Grid, Ty::Items];

impl Ty {
    /// How the type is written.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Ty::Number => "u32",
            Ty::Flag => "bool",
            Ty::Text => "String",
            Ty::List => "Vec<u32>",
            Ty::Maybe => "Option<u32>",
            Ty::Pair => "(u32, String)",
            Ty::Item => "Item",
            Ty::Shape => "Shape",
            Ty::Grid => "Vec<Vec<u32>>",
            Ty::Items => "Vec<Item>",
            Ty::Boxed => "Box<Item>",
            Ty::Next => "Option<Box<Item>>",
            Ty::Tags => "Vec<String>",
            Ty::Letter => "char",
            Ty::Index => "usize",
            Ty::Slice => "[u32]",
            Ty::Literal => "&'static str",
            Ty::Token => "Token",
            Ty::Noisy => "Noisy",
            Ty::Choice => "(bool, Option<u32>)",
        }
    }

    /// Whether using a value leaves it where it was.
    pub(crate) fn is_copy(self) -> bool {
        matches!(self, Ty::Number | Ty::Flag | Ty::Maybe | Ty::Letter | Ty::Index | Ty::Literal)
    }

    /// The first letters of the names of such locals.
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Ty::Number => "n",
            Ty::Flag => "ok",
            Ty::Text | Ty::Literal => "t",
            Ty::List | Ty::Slice => "v",
            Ty::Maybe => "o",
            Ty::Pair => "p",
            Ty::Item | Ty::Boxed => "it",
            Ty::Shape => "s",
            Ty::Grid => "g",
            Ty::Items => "its",
            Ty::Next => "next",
            Ty::Tags => "tags",
            Ty::Letter => "c",
            Ty::Index => "i",
            Ty::Token => "tok",
            Ty::Noisy => "noisy",
            Ty::Choice => "choice",
        }
    }

    /// The call of `Io` that gives such a value.
    pub(crate) fn call(self) -> &'static str {
        match self {
            Ty::Number => "pick",
            Ty::Flag => "flag",
            Ty::Text => "text",
            Ty::List => "list",
            Ty::Maybe => "maybe",
            Ty::Pair => "pair",
            Ty::Item => "item",
            Ty::Shape => "shape",
            Ty::Grid => "grid",
            Ty::Items => "items",
            other => unreachable!("no call gives {other:?}"),
        }
    }

    /// A value for an argument of this type.
    pub(crate) fn argument(self) -> &'static str {
        match self {
            Ty::Number => "7",
            Ty::Flag => "true",
            Ty::Text => "\"given\".to_string()",
            Ty::List => "vec![2, 3, 5]",
            Ty::Maybe => "Some(4)",
            Ty::Pair => "(9, \"pair\".to_string())",
            Ty::Item => "make_item(3, \"given\".to_string())",
            Ty::Shape => "Shape::Two(6, \"shape\".to_string())",
            Ty::Grid => "vec![vec![1], vec![2, 3]]",
            Ty::Items => "vec![make_item(1, String::new())]",
            other => unreachable!("no argument is {other:?}"),
        }
    }
}
