use crate::setting::*;
