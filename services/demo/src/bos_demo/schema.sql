-- The sample company, in SQL that PostgreSQL and SQLite both read. The comment above a table and the
-- comment after a column are data: they become COMMENT ON in PostgreSQL, rows of data_dictionary in
-- both, and stay readable in sqlite_master. Keep one column per line.

-- Sales regions. Domestic regions are in India and pay GST, export regions do not.
CREATE TABLE regions (
    region_id integer PRIMARY KEY, -- Identifier of the region
    region_name text NOT NULL UNIQUE, -- Name people use, for example West India
    market text NOT NULL CHECK (market IN ('domestic', 'export')) -- domestic or export
);

-- Departments of the company with their yearly budgets.
CREATE TABLE departments (
    department_id integer PRIMARY KEY, -- Identifier of the department
    department_name text NOT NULL UNIQUE, -- Name, for example Procurement
    cost_centre text NOT NULL UNIQUE, -- Cost centre code in the ledger
    annual_budget numeric(14, 2) NOT NULL -- Budget of the fiscal year (April to March) in Rs.
);

-- People who work or worked for the company.
CREATE TABLE employees (
    employee_id integer PRIMARY KEY, -- Identifier of the employee
    full_name text NOT NULL, -- Given name and family name
    email text NOT NULL UNIQUE, -- Work e-mail address
    department_id integer NOT NULL REFERENCES departments (department_id), -- Department the person belongs to
    region_id integer NOT NULL REFERENCES regions (region_id), -- Region where the person is based
    manager_id integer REFERENCES employees (employee_id), -- Direct manager, empty for the managing director
    job_title text NOT NULL, -- Job title
    hired_on date NOT NULL, -- First working day
    left_on date, -- Last working day, empty for people still employed
    monthly_salary numeric(14, 2) NOT NULL -- Gross salary per month in Rs.
);

-- Product categories in two levels: a group has no parent, a category has a group as parent.
CREATE TABLE product_categories (
    category_id integer PRIMARY KEY, -- Identifier of the category
    category_name text NOT NULL UNIQUE, -- Name, for example Ball Valves
    parent_category_id integer REFERENCES product_categories (category_id) -- Group of the category, empty for a group
);

-- Companies that goods are bought from.
CREATE TABLE suppliers (
    supplier_id integer PRIMARY KEY, -- Identifier of the supplier
    supplier_name text NOT NULL UNIQUE, -- Registered name
    city text NOT NULL, -- City of the head office
    country text NOT NULL, -- Country of the head office
    contact_email text NOT NULL, -- Address for orders
    rating numeric(3, 1) NOT NULL, -- Quality rating from 1.0 (poor) to 5.0 (excellent)
    lead_time_days integer NOT NULL, -- Agreed days between order and delivery
    payment_terms_days integer NOT NULL, -- Days we have to pay after delivery
    status text NOT NULL CHECK (status IN ('active', 'on_hold')) -- active, or on_hold when we buy no more
);

-- Goods the company sells; each is bought from one supplier.
CREATE TABLE products (
    product_id integer PRIMARY KEY, -- Identifier of the product
    sku text NOT NULL UNIQUE, -- Stock keeping unit printed on labels
    product_name text NOT NULL UNIQUE, -- Name in the catalogue
    category_id integer NOT NULL REFERENCES product_categories (category_id), -- Category of the product, never a group
    supplier_id integer NOT NULL REFERENCES suppliers (supplier_id), -- Supplier the product is bought from
    unit text NOT NULL, -- Unit of quantities: each, metre or litre
    list_price numeric(14, 2) NOT NULL, -- Price per unit without discount and tax in Rs.
    unit_cost numeric(14, 2) NOT NULL, -- Standard purchase cost per unit in Rs.
    reorder_level integer NOT NULL, -- Stock per warehouse below which the product is reordered
    launched_on date NOT NULL, -- First day on sale
    discontinued_on date -- Last day on sale, empty for products still sold
);

-- Companies that buy from us.
CREATE TABLE customers (
    customer_id integer PRIMARY KEY, -- Identifier of the customer
    customer_name text NOT NULL UNIQUE, -- Registered name
    segment text NOT NULL, -- OEM, Distributor, Utility, Contractor or Process plant
    region_id integer NOT NULL REFERENCES regions (region_id), -- Sales region
    city text NOT NULL, -- City of the head office
    account_manager_id integer NOT NULL REFERENCES employees (employee_id), -- Employee who looks after the customer
    credit_limit numeric(14, 2) NOT NULL, -- Highest unpaid total we accept in Rs.
    payment_terms_days integer NOT NULL, -- Days the customer has to pay an invoice
    customer_since date NOT NULL, -- Day of the first contract
    status text NOT NULL CHECK (status IN ('active', 'lapsed')) -- active, or lapsed: no longer buys
);

-- Sales invoices. Revenue is the sum of net_amount by invoice_date.
CREATE TABLE invoices (
    invoice_id integer PRIMARY KEY, -- Identifier of the invoice
    invoice_number text NOT NULL UNIQUE, -- Number printed on the invoice
    customer_id integer NOT NULL REFERENCES customers (customer_id), -- Customer who is billed
    invoice_date date NOT NULL, -- Day of issue; decides the period of the revenue
    due_date date NOT NULL, -- Last day to pay in time
    net_amount numeric(14, 2) NOT NULL, -- Sum of the lines without tax in Rs.; this is revenue
    tax_amount numeric(14, 2) NOT NULL, -- GST in Rs., zero for export
    total_amount numeric(14, 2) NOT NULL, -- Net amount plus tax in Rs.; this is what the customer pays
    status text NOT NULL CHECK (status IN ('paid', 'partly_paid', 'open')) -- paid, partly_paid or open (nothing paid)
);

-- Lines of sales invoices, one product each.
CREATE TABLE invoice_lines (
    invoice_line_id integer PRIMARY KEY, -- Identifier of the line
    invoice_id integer NOT NULL REFERENCES invoices (invoice_id), -- Invoice of the line
    line_number integer NOT NULL, -- Position on the invoice, from 1
    product_id integer NOT NULL REFERENCES products (product_id), -- Product sold
    quantity integer NOT NULL CHECK (quantity > 0), -- Units sold
    unit_price numeric(14, 2) NOT NULL, -- Price per unit before discount in Rs.
    discount_percent numeric(5, 2) NOT NULL, -- Discount on the line in percent
    line_amount numeric(14, 2) NOT NULL -- Quantity times price less discount, without tax, in Rs.
);

-- Money received for sales invoices. An invoice may be paid in parts.
CREATE TABLE payments (
    payment_id integer PRIMARY KEY, -- Identifier of the payment
    invoice_id integer NOT NULL REFERENCES invoices (invoice_id), -- Invoice that is paid
    payment_date date NOT NULL, -- Day the money arrived; late when after the due date
    amount numeric(14, 2) NOT NULL, -- Amount received in Rs.
    method text NOT NULL -- bank transfer, cheque, UPI or letter of credit
);

-- Goods that customers sent back, with the credit they were given.
CREATE TABLE sales_returns (
    return_id integer PRIMARY KEY, -- Identifier of the return
    invoice_line_id integer NOT NULL REFERENCES invoice_lines (invoice_line_id), -- Line that is returned
    return_date date NOT NULL, -- Day the goods came back
    quantity integer NOT NULL CHECK (quantity > 0), -- Units returned
    credit_amount numeric(14, 2) NOT NULL, -- Credit given without tax in Rs.
    reason text NOT NULL -- damaged in transit, wrong item, defective or no longer needed
);

-- Storage sites.
CREATE TABLE warehouses (
    warehouse_id integer PRIMARY KEY, -- Identifier of the warehouse
    warehouse_name text NOT NULL UNIQUE, -- Name, for example Pune Central
    city text NOT NULL, -- City of the site
    region_id integer NOT NULL REFERENCES regions (region_id), -- Region of the site
    floor_area_sqm integer NOT NULL -- Storage area in square metres
);

-- Orders placed with suppliers.
CREATE TABLE purchase_orders (
    purchase_order_id integer PRIMARY KEY, -- Identifier of the order
    po_number text NOT NULL UNIQUE, -- Number printed on the order
    supplier_id integer NOT NULL REFERENCES suppliers (supplier_id), -- Supplier who delivers
    warehouse_id integer NOT NULL REFERENCES warehouses (warehouse_id), -- Warehouse that receives the goods
    buyer_id integer NOT NULL REFERENCES employees (employee_id), -- Employee who placed the order
    order_date date NOT NULL, -- Day the order was placed
    expected_date date NOT NULL, -- Agreed day of delivery
    received_date date, -- Day the goods arrived, empty while not received; late when after expected_date
    status text NOT NULL CHECK (status IN ('received', 'open', 'cancelled')), -- received, open or cancelled
    total_amount numeric(14, 2) NOT NULL -- Sum of the lines in Rs.
);

-- Lines of purchase orders, one product each.
CREATE TABLE purchase_order_lines (
    purchase_order_line_id integer PRIMARY KEY, -- Identifier of the line
    purchase_order_id integer NOT NULL REFERENCES purchase_orders (purchase_order_id), -- Order of the line
    line_number integer NOT NULL, -- Position on the order, from 1
    product_id integer NOT NULL REFERENCES products (product_id), -- Product ordered
    quantity_ordered integer NOT NULL, -- Units ordered
    quantity_received integer NOT NULL, -- Units received so far
    unit_cost numeric(14, 2) NOT NULL, -- Price per unit in Rs.
    line_amount numeric(14, 2) NOT NULL -- Units ordered times price in Rs.
);

-- Stock on hand today per warehouse and product: the sum of its stock movements.
CREATE TABLE stock_levels (
    warehouse_id integer NOT NULL REFERENCES warehouses (warehouse_id), -- Warehouse
    product_id integer NOT NULL REFERENCES products (product_id), -- Product
    quantity_on_hand integer NOT NULL CHECK (quantity_on_hand >= 0), -- Units on the shelf
    last_counted_on date NOT NULL, -- Day of the last physical count
    PRIMARY KEY (warehouse_id, product_id)
);

-- Every change of stock. Quantities are signed: receipts are positive, issues negative.
CREATE TABLE stock_movements (
    stock_movement_id integer PRIMARY KEY, -- Identifier of the movement
    warehouse_id integer NOT NULL REFERENCES warehouses (warehouse_id), -- Warehouse
    product_id integer NOT NULL REFERENCES products (product_id), -- Product
    movement_date date NOT NULL, -- Day of the movement
    movement_type text NOT NULL, -- opening, receipt, issue, return or adjustment
    quantity integer NOT NULL, -- Units, positive into the warehouse, negative out of it
    invoice_line_id integer REFERENCES invoice_lines (invoice_line_id), -- Sales line of an issue or a return
    purchase_order_line_id integer REFERENCES purchase_order_lines (purchase_order_line_id) -- Purchase line of a receipt
);

-- Requests of customers to the service desk.
CREATE TABLE support_tickets (
    ticket_id integer PRIMARY KEY, -- Identifier of the ticket
    customer_id integer NOT NULL REFERENCES customers (customer_id), -- Customer who asked
    product_id integer REFERENCES products (product_id), -- Product concerned, empty when none
    assigned_to integer NOT NULL REFERENCES employees (employee_id), -- Employee who handles the ticket
    topic text NOT NULL, -- delivery, quality, billing or technical
    priority text NOT NULL, -- low, normal, high or urgent
    status text NOT NULL CHECK (status IN ('open', 'waiting', 'closed')), -- open, waiting (for the customer) or closed
    opened_at timestamp NOT NULL, -- When the ticket was opened, Indian time
    closed_at timestamp, -- When the ticket was closed, empty while it is not
    satisfaction integer -- Score the customer gave from 1 to 5, empty when none was given
);

-- Revenue that a region was asked to bring in a calendar quarter.
CREATE TABLE sales_targets (
    region_id integer NOT NULL REFERENCES regions (region_id), -- Region
    quarter_start date NOT NULL, -- First day of the calendar quarter
    target_amount numeric(14, 2) NOT NULL, -- Target revenue (net) in Rs.
    PRIMARY KEY (region_id, quarter_start)
);

-- What every table and column means. A row with an empty column_name describes the table itself.
CREATE TABLE data_dictionary (
    table_name text NOT NULL, -- Name of the table
    column_name text NOT NULL, -- Name of the column, empty for the table itself
    description text NOT NULL, -- Meaning in plain words
    PRIMARY KEY (table_name, column_name)
);

CREATE INDEX employees_department ON employees (department_id);
CREATE INDEX products_category ON products (category_id);
CREATE INDEX products_supplier ON products (supplier_id);
CREATE INDEX customers_region ON customers (region_id);
CREATE INDEX invoices_customer ON invoices (customer_id);
CREATE INDEX invoices_date ON invoices (invoice_date);
CREATE INDEX invoice_lines_invoice ON invoice_lines (invoice_id);
CREATE INDEX invoice_lines_product ON invoice_lines (product_id);
CREATE INDEX payments_invoice ON payments (invoice_id);
CREATE INDEX payments_date ON payments (payment_date);
CREATE INDEX sales_returns_line ON sales_returns (invoice_line_id);
CREATE INDEX purchase_orders_supplier ON purchase_orders (supplier_id);
CREATE INDEX purchase_orders_date ON purchase_orders (order_date);
CREATE INDEX purchase_order_lines_order ON purchase_order_lines (purchase_order_id);
CREATE INDEX stock_movements_product ON stock_movements (product_id, warehouse_id);
CREATE INDEX support_tickets_customer ON support_tickets (customer_id);
CREATE INDEX support_tickets_opened ON support_tickets (opened_at);
