"""Word lists of the sample company. All companies and people in it are invented."""

from __future__ import annotations

from typing import NamedTuple

COMPANY_NAME = "Nilgiri Flow Works Ltd."

REGIONS: tuple[tuple[str, str], ...] = (
    ("West India", "domestic"),
    ("North India", "domestic"),
    ("South India", "domestic"),
    ("East India", "domestic"),
    ("Gulf", "export"),
    ("South-East Asia", "export"),
    ("East Africa", "export"),
    ("Europe", "export"),
)

CITIES: dict[str, tuple[str, ...]] = {
    "West India": ("Pune", "Mumbai", "Ahmedabad", "Nashik", "Vadodara", "Nagpur", "Surat"),
    "North India": ("Delhi", "Ludhiana", "Jaipur", "Kanpur", "Faridabad", "Lucknow"),
    "South India": ("Chennai", "Coimbatore", "Hyderabad", "Bengaluru", "Kochi", "Madurai"),
    "East India": ("Kolkata", "Jamshedpur", "Bhubaneswar", "Patna", "Guwahati"),
    "Gulf": ("Dubai", "Muscat", "Doha", "Dammam"),
    "South-East Asia": ("Singapore", "Penang", "Surabaya", "Da Nang"),
    "East Africa": ("Nairobi", "Mombasa", "Kampala", "Dar es Salaam"),
    "Europe": ("Rotterdam", "Porto", "Gdansk", "Graz"),
}

WAREHOUSES: tuple[tuple[str, str, str, int], ...] = (
    ("Pune Central", "Pune", "West India", 14500),
    ("Faridabad North", "Faridabad", "North India", 9800),
    ("Chennai Port", "Chennai", "South India", 11200),
    ("Kolkata East", "Kolkata", "East India", 6400),
    ("Jebel Ali Hub", "Dubai", "Gulf", 4200),
)


class DepartmentPlan(NamedTuple):
    """Headcount, job titles and salaries of a department."""

    name: str
    cost_centre: str
    head_title: str
    titles: tuple[str, ...]
    people: int
    salary_range: tuple[int, int]  # Rs. per month


DEPARTMENTS: tuple[DepartmentPlan, ...] = (
    DepartmentPlan(
        "Management", "CC-100", "Managing Director", ("Executive Assistant",), 4, (70000, 120000)
    ),
    DepartmentPlan(
        "Sales",
        "CC-200",
        "Head of Sales",
        ("Account Manager", "Senior Account Manager", "Sales Coordinator"),
        46,
        (52000, 145000),
    ),
    DepartmentPlan(
        "Procurement",
        "CC-300",
        "Head of Procurement",
        ("Buyer", "Senior Buyer"),
        22,
        (48000, 118000),
    ),
    DepartmentPlan(
        "Warehousing",
        "CC-400",
        "Head of Warehousing",
        ("Storekeeper", "Forklift Operator", "Shift Supervisor"),
        48,
        (24000, 62000),
    ),
    DepartmentPlan(
        "Quality",
        "CC-500",
        "Head of Quality",
        ("Inspector", "Quality Engineer"),
        18,
        (38000, 92000),
    ),
    DepartmentPlan(
        "Customer Service",
        "CC-600",
        "Head of Customer Service",
        ("Service Agent", "Service Engineer"),
        26,
        (31000, 84000),
    ),
    DepartmentPlan(
        "Finance",
        "CC-700",
        "Chief Financial Officer",
        ("Accountant", "Credit Controller"),
        18,
        (42000, 110000),
    ),
    DepartmentPlan(
        "Engineering",
        "CC-800",
        "Head of Engineering",
        ("Design Engineer", "Application Engineer"),
        24,
        (56000, 150000),
    ),
    DepartmentPlan(
        "Information Technology",
        "CC-900",
        "Head of IT",
        ("System Administrator", "Data Analyst"),
        10,
        (50000, 130000),
    ),
    DepartmentPlan(
        "Human Resources", "CC-950", "Head of HR", ("HR Partner", "Recruiter"), 8, (40000, 88000)
    ),
)

GIVEN_NAMES: tuple[str, ...] = (
    *("Aarti", "Abhay", "Aditi", "Ajit", "Amala", "Amrita", "Anand", "Anjali", "Arun", "Asha"),
    *("Bhavna", "Bhaskar", "Chetan", "Chitra", "Deepa", "Devika", "Dinesh", "Farida", "Ganesh"),
    *("Gauri", "Girish", "Harini", "Harsh", "Imran", "Indira", "Isha", "Jagdish", "Jaya", "Kabir"),
    *("Kavita", "Kiran", "Lakshmi", "Lalit", "Leela", "Madhav", "Malini", "Manoj", "Meera"),
    *("Mohan", "Nandini", "Naveen", "Neha", "Nikhil", "Nisha", "Omkar", "Padma", "Pankaj"),
    *("Pooja", "Pranav", "Priya", "Rahul", "Rajani", "Ramesh", "Rekha", "Rohit", "Rukmini"),
    *("Sachin", "Sanjana", "Sarita", "Shalini", "Shyam", "Smita", "Sunil", "Swati", "Tara"),
    *("Tejas", "Uday", "Uma", "Varun", "Vasudha", "Vikram", "Vinita", "Yamini", "Yusuf", "Zoya"),
)

FAMILY_NAMES: tuple[str, ...] = (
    *("Apte", "Bagchi", "Banerjee", "Bhatt", "Borkar", "Chandran", "Chauhan", "Contractor"),
    *("Das", "Deshmukh", "Dixit", "Fernandes", "Gadgil", "Ghosh", "Gill", "Gokhale", "Hegde"),
    *("Iyer", "Jadhav", "Joshi", "Kamat", "Kapadia", "Khan", "Kulkarni", "Kurien", "Lobo"),
    *("Mahajan", "Malhotra", "Menon", "Mirza", "Mishra", "Nadkarni", "Nair", "Oberoi", "Pandit"),
    *("Parekh", "Patil", "Pillai", "Prabhu", "Qureshi", "Rane", "Rao", "Saxena", "Sengupta"),
    *("Shetty", "Shinde", "Singh", "Subramanian", "Thakur", "Tripathi", "Varghese", "Wagle"),
)

DOMESTIC_PREFIXES: tuple[str, ...] = (
    *("Aravalli", "Ashwini", "Bhima", "Bhadra", "Chandrika", "Chenab", "Dakshin", "Devgiri"),
    *("Dhaulagiri", "Ganga Valley", "Garuda", "Girnar", "Godavari", "Hemavati", "Indrayani"),
    *("Kalyani Hills", "Kaveri", "Konkan", "Krishna Delta", "Kumaon", "Lohit", "Mahanadi"),
    *("Malabar", "Manjira", "Marudhar", "Narmada", "Panchavati", "Penna", "Purandar", "Rajmahal"),
    *("Ratnagiri", "Sabarmati", "Sahyadri", "Satpura", "Sharavati", "Shivalik", "Sindhu"),
    *("Sonbhadra", "Subarna", "Tapti", "Teesta", "Tungabhadra", "Ujjani", "Vaigai", "Vindhya"),
    *("Wainganga", "Yamuna Plains", "Zanskar"),
)

EXPORT_PREFIXES: dict[str, tuple[str, ...]] = {
    "Gulf": ("Al Safwa Coast", "Dune Crest", "Falaj", "Khor Bay", "Sahil", "Wadi Stone"),
    "South-East Asia": ("Bukit Jaya", "Lantau Strait", "Merapi", "Straitsway", "Teluk", "Song Han"),
    "East Africa": ("Kilindini", "Mara Ridge", "Nyika", "Rift Line", "Tana Delta", "Uhuru Creek"),
    "Europe": ("Amstelkade", "Baltica", "Douro", "Murtal", "Norderhaven", "Tejo"),
}

CUSTOMER_TRADES: dict[str, tuple[str, ...]] = {
    "OEM": ("Boilers", "Compressors", "Machine Tools", "Process Skids", "Chillers"),
    "Distributor": ("Trading House", "Industrial Supplies", "Hardware Mart", "Pipe Centre"),
    "Utility": ("Water Board", "Power Station", "Irrigation Works", "Gas Networks"),
    "Contractor": ("Infraprojects", "Pipelines", "Civil Works", "Mechanical Erectors"),
    "Process plant": ("Sugars", "Paper Mills", "Dyes", "Fertilisers", "Breweries", "Cement"),
}

SUPPLIER_TRADES: tuple[str, ...] = (
    *("Castings", "Forgings", "Precision Parts", "Alloys", "Seals", "Gauges", "Bearings"),
    *("Pump Works", "Valve Works", "Tubes", "Polymers", "Fasteners"),
)

SUPPLIER_PREFIXES: tuple[tuple[str, str, str], ...] = (
    ("Anantara", "Rajkot", "India"),
    ("Bhavani", "Kolhapur", "India"),
    ("Coral Hill", "Coimbatore", "India"),
    ("Doab", "Ludhiana", "India"),
    ("Elanji", "Thrissur", "India"),
    ("Gomti", "Kanpur", "India"),
    ("Hoysala", "Hubballi", "India"),
    ("Jhelum", "Jalandhar", "India"),
    ("Kutch", "Bhuj", "India"),
    ("Lokmanya", "Pune", "India"),
    ("Mewar", "Udaipur", "India"),
    ("Noyyal", "Coimbatore", "India"),
    ("Palar", "Chennai", "India"),
    ("Rishi", "Ahmedabad", "India"),
    ("Saryu", "Howrah", "India"),
    ("Triveni Ghat", "Jamshedpur", "India"),
    ("Bergwerk Lohne", "Lohne", "Germany"),
    ("Colle Verde", "Brescia", "Italy"),
    ("Hanbit", "Changwon", "South Korea"),
    ("Jade Estuary", "Ningbo", "China"),
    ("Kansai Hollow", "Osaka", "Japan"),
    ("Lion Rock", "Kaohsiung", "Taiwan"),
)

SUPPLIER_SUFFIXES: tuple[str, ...] = ("Pvt Ltd", "Industries", "Co")


class CategoryPlan(NamedTuple):
    """Names, sizes and prices of the products of a category."""

    group: str
    name: str
    code: str
    noun: str
    materials: tuple[str, ...]
    sizes: tuple[str, ...]
    price_range: tuple[int, int]  # Rs. per unit, smallest to largest size
    unit: str = "each"


METALS = ("Cast Iron", "Stainless Steel", "Bronze")

CATEGORIES: tuple[CategoryPlan, ...] = (
    CategoryPlan(
        *("Pumps", "Centrifugal Pumps", "CP", "Centrifugal Pump"),
        *(METALS, ("5 kW", "11 kW", "22 kW", "45 kW"), (38000, 310000)),
    ),
    CategoryPlan(
        *("Pumps", "Submersible Pumps", "SP", "Submersible Pump"),
        *(("Cast Iron", "Stainless Steel"), ("2 kW", "5 kW", "9 kW", "15 kW"), (21000, 140000)),
    ),
    CategoryPlan(
        *("Pumps", "Dosing Pumps", "DP", "Dosing Pump"),
        *(("PVC", "PTFE", "Stainless Steel"), ("10 l/h", "60 l/h", "250 l/h"), (16000, 72000)),
    ),
    CategoryPlan(
        *("Valves", "Ball Valves", "BV", "Ball Valve"),
        *(METALS, ("25 mm", "50 mm", "100 mm", "200 mm"), (900, 24000)),
    ),
    CategoryPlan(
        *("Valves", "Gate Valves", "GV", "Gate Valve"),
        *(METALS, ("50 mm", "100 mm", "200 mm", "300 mm"), (2400, 46000)),
    ),
    CategoryPlan(
        *("Valves", "Check Valves", "CV", "Check Valve"),
        *(METALS, ("25 mm", "50 mm", "100 mm", "200 mm"), (1100, 19000)),
    ),
    CategoryPlan(
        *("Valves", "Control Valves", "KV", "Control Valve"),
        *(("Cast Iron", "Stainless Steel"), ("25 mm", "50 mm", "80 mm", "150 mm"), (28000, 165000)),
    ),
    CategoryPlan(
        *("Pipes and Fittings", "Pipes", "PI", "Pipe"),
        *(("Galvanised", "Stainless Steel", "HDPE"), ("50 mm", "100 mm", "200 mm"), (240, 3600)),
        "metre",
    ),
    CategoryPlan(
        *("Pipes and Fittings", "Flanges", "FL", "Flange"),
        *(
            ("Carbon Steel", "Stainless Steel"),
            ("50 mm", "100 mm", "200 mm", "300 mm"),
            (420, 9800),
        ),
    ),
    CategoryPlan(
        *("Pipes and Fittings", "Couplings", "CO", "Coupling"),
        *(("Brass", "Stainless Steel", "HDPE"), ("25 mm", "50 mm", "100 mm"), (130, 2600)),
    ),
    CategoryPlan(
        *("Instruments", "Pressure Gauges", "PG", "Pressure Gauge"),
        *(("Brass", "Stainless Steel"), ("6 bar", "16 bar", "40 bar", "100 bar"), (700, 5400)),
    ),
    CategoryPlan(
        *("Instruments", "Flow Meters", "FM", "Flow Meter"),
        *(("Turbine", "Magnetic", "Ultrasonic"), ("25 mm", "80 mm", "200 mm"), (19000, 135000)),
    ),
    CategoryPlan(
        *("Instruments", "Level Sensors", "LS", "Level Sensor"),
        *(("Float", "Radar", "Capacitive"), ("1 m", "5 m", "20 m"), (3200, 58000)),
    ),
    CategoryPlan(
        *("Spares", "Mechanical Seals", "MS", "Mechanical Seal"),
        *(("Carbon", "Silicon Carbide"), ("25 mm", "40 mm", "60 mm", "90 mm"), (1500, 14500)),
    ),
    CategoryPlan(
        *("Spares", "Bearings", "BE", "Bearing"),
        *(("Ball", "Roller", "Thrust"), ("30 mm", "55 mm", "85 mm"), (380, 7400)),
    ),
    CategoryPlan(
        *("Spares", "Lubricants", "LU", "Lubricant"),
        *(("Mineral", "Synthetic", "Food Grade"), ("ISO 32", "ISO 68", "ISO 150"), (210, 980)),
        "litre",
    ),
)

PRODUCT_SERIES: tuple[str, ...] = ("Ghat", "Monsoon")
