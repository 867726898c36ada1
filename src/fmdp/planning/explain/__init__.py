"""Explanations, decision trees and exports of policies."""
