"""The paper's theory as a calculator (SPEC section 7): pure functions of strata, sizes and rates, without torch."""
