//! Tests of the command-line program, which is run as a user would run it.

mod common;

mod applications;
mod bad_input;
mod clients;
mod cluster;
mod curves;
mod events;
mod evidence;
mod explore;
mod fuzz;
mod histories;
mod interrupted;
mod isolated;
mod killed;
mod links;
mod local;
mod model;
mod narrow;
mod paper;
mod parts;
mod planned;
mod plugin;
mod programs;
mod replay;
mod same_judgement;
mod simulate;
mod sweep;
mod system;
mod tasks;
mod tc;
mod traces;
mod view;
