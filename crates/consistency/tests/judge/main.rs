//! Tests of the judge: small random histories against a definition that tries every order, histories that only one rule
//! refuses, and properties of the verdict.

mod definition;
mod random;
mod registers;
mod support;
