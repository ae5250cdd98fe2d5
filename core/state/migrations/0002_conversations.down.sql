DROP TABLE conversation_turns;
