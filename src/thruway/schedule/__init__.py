"""From a Program to a Plan: layouts, fusion, order, memory."""
