DROP TABLE approvals;
DROP TABLE runs;
