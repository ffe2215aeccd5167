//! Tests of the judge: small random histories against a definition that tries every order, histories that only one rule
//! refuses, properties of the verdict, and histories that other programs recorded.

mod clients;
mod definition;
mod foreign;
mod generate;
mod lists;
mod random;
mod reduction;
mod registers;
mod rules;
mod support;
