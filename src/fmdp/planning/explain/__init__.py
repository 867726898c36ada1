"""What a plan does and why: explanations, decision trees and exports."""
