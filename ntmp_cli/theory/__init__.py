"""The paper's theory as a calculator: pure functions of strata, sizes and rates, without torch."""
